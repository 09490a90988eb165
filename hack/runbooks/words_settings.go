package main

// wordsSettings are of settings: whether they act, by which gate they do not, and their warnings.
var wordsSettings = map[string]more{
	"InEffect": {Plain: true, Means: "Each setting that was asked for acts within the gates of this library build, " +
		"and the A/B run shows its effect on each member. Whether it pays is another question: `kubectl commgroup " +
		"status GROUP -n NAMESPACE` has the advice."},
	"NotRequested": {Plain: true, Means: "`dda.mode` and `lowPrecision.mode` are Disabled and `runtime.env` has no " +
		"variable of the library's. Only Baseline is measured."},
	"NotInEffect": {
		Seen: []string{"2 of 4 requested settings are not in effect: dda.AllGather (NotBuilt), dda.ReduceScatter " +
			"(NotBuilt). status.settings of the CommRun says why."},
		Means: "The setting was asked for and a gate of this build, or of this run's ranks, sizes and datatypes, " +
			"leaves it without effect. The library does not say so; jobs would believe they have it. " +
			"It costs nothing and does nothing.",
		Causes: []string{"`NotBuilt`: open builds have DDA for AllReduce only. Take the collective out of the wish.",
			"`RankCount`, `MultiNode`: DDA is for exactly eight ranks of one node.",
			"`BelowThreshold`, `AboveThreshold`, `DatatypeUnsupported`: the sizes or types that were measured.",
			"`UnknownVariable`: a name of another fork."},
		Look: []string{explain + "   # gate and next step of each", "agent explain --flavor rcclx-dev --collective " +
			"AllReduce --datatype bf16 --ranks 8   # the whole table of a flavor by size, without a cluster"},
		Do:       []string{"Open the page of the word in brackets."},
		Escalate: "Whoever builds the library, for NotBuilt where you need it.",
		Ends:     "With a run in which all that is asked for acts, or with the wish taken back."},
	"NotVerified": {
		Seen: []string{
			"The gates allow dda.AllReduce, and the A/B run shows no difference from Baseline. Set the mode to " +
				"Disabled if it does not help.",
			"AllReduce no faster than Baseline by 5 % at any of 7 sizes; best 65536 B: 31.2 us -> 30.9 us, 1.01x"},
		Means: "By its gates it acts, and the numbers do not show it. Either it truly makes no difference at these " +
			"sizes, or the library takes no notice.",
		Causes: []string{"The sizes at which DDA helps (small ones, to some MiB) were hardly measured.",
			"Noise hides it: iterations vary by more than the gain.",
			"The GPUs' links are not the limit, so that FP8's smaller messages save nothing.",
			"The variable did not reach the ranks, or the build ignores it."},
		Look: []string{
			results + " -o csv   # Baseline beside the variant, by size, with noisePercent",
			explain,
			"kubectl get commtask -n NAMESPACE GROUP.NODE -o jsonpath='{.status.run.environment}'   # " +
				"what the ranks got"},
		Do: []string{"DDA: `benchmark.minSizeBytes: 1024` and more `benchmark.iterations`. FP8: " +
			"sizes from 16 MiB to 1 GiB."},
		Escalate: "The library's builder, where not even FP8's rounding shows in the data.",
		Ends:     "With a run that confirms it, or with the mode Disabled."},
	"Active": {Plain: true, Means: "The gates let the setting act for the sizes and datatypes that were measured; " +
		"`verified` beside it says whether the numbers show it."},
	"NotBuilt": {
		Seen: []string{"open builds have DDA for AllReduce only",
			"rcclx-stable reads the DDA variables, but its build never takes a DDA path: use rcclx-dev"},
		Means: "The code is in the source and was not compiled into this file (for RCCLX's other DDA collectives a " +
			"flag that no open build file sets), or is for other GPUs. The variable is read and ignored.",
		Causes: []string{"An open build of RCCLX: AllGather, ReduceScatter and AllToAll of DDA are not in it.",
			"The flavor is rcclx-stable.", "The GPU is neither gfx942 nor gfx950."},
		Look: []string{explain + " dda   # line library: flavor, version and build hash that each node loaded",
			"agent explain --flavor rcclx-dev --collective AllGather --datatype bf16 --ranks 8   # what an " +
				"open build can do"},
		Do:       []string{"Jobs lose nothing against today: they never had it."},
		Escalate: "Whoever builds the library.",
		Ends:     "With a run in an image that has it."},
	"MultiNode": {
		Seen: []string{"DDA works within one node; this communicator has 2"},
		Means: "DDA goes by peer access between GPUs of one node. In a communicator over nodes it switches itself " +
			"off, without a word in the log of a job.",
		Causes: []string{"The communicator reaches over nodes: data-parallel groups, or all ranks of a large job.",
			"`ranksPerNode` is 4 and eight ranks lie on two nodes."},
		Look: []string{explain + " dda",
			"agent explain --flavor rcclx-dev --collective AllReduce --datatype bf16 --ranks 16 --nodes 2"},
		Do:   []string{"Tensor-parallel groups within a node still have it: measure them with a `mesh` (`tp: 8`)."},
		Ends: "With communicators within a node."},
	"RankCount": {
		Seen: []string{"DDA needs exactly 8 ranks; this communicator has 4"},
		Means: "DDA's kernels are written for eight ranks. With any other number the library falls back to ring or " +
			"tree and does not say so.",
		Causes: []string{"`ranksPerNode` is not 8, or a mesh has a dimension of another size.",
			"A node with fewer GPUs.", "Partitions (CPX): more than eight devices a node."},
		Look: []string{explain + " dda",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.ranksPerNode} {.spec.mesh}'"},
		Do: []string{"Jobs whose tensor-parallel size is 4 gain nothing from DDA: leave it off and save its 32 MiB " +
			"a communicator."},
		Ends: "With a run of eight ranks."},
	"AboveThreshold": {
		Seen: []string{"over the tree (two-shot) limit of 30408704 bytes (29 MiB), RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES"},
		Means: "All measured sizes are larger than the largest one at which the setting acts; larger calls take ring " +
			"or tree. That is how it is meant to be: DDA is for small and medium messages.",
		Causes: []string{"`benchmark.minSizeBytes` begins above the limit.",
			"`dda.allReduceFlatMaxBytes` and `dda.allReduceTreeMaxBytes` were set low.",
			"The staging buffer (32 MiB) is smaller than the tree limit that was asked for."},
		Look: []string{explain + " dda.AllReduce   # the limit, and by which variable",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.benchmark.minSizeBytes} {.spec.dda}'"},
		Do: []string{"Do not raise the limit blindly: `status.advice` of the last CommRun says up to which size " +
			"DDA was faster."},
		Ends: "With a run that measures smaller sizes, or with higher limits."},
	"TakenByFP8": {
		Seen:  []string{"from 16777216 bytes (16 MiB) FP8 takes the call before DDA"},
		Means: "Both are on, and the library asks FP8 first. For these sizes the DDA numbers would be FP8's.",
		Causes: []string{"`lowPrecision.mode` is on for this collective, and the measured sizes are 16 MiB and more.",
			"A limit of DDA above 16 MiB, which then means nothing."},
		Look: []string{explain, "agent explain --flavor rcclx-dev --collective AllReduce --datatype bf16 --ranks 8 " +
			"--low-precision Preferred   # who takes which size"},
		Do: []string{"Where DDA is faster than FP8 there, the advice keeps FP8 off by itself (`publish.choice: " +
			"WhereWorthIt`)."},
		Escalate: "The model's owner decides whether FP8's error is worth its gain.",
		Ends:     "With FP8 off for the collective, or with smaller sizes measured."},
	"DatatypeUnsupported": {
		Seen: []string{"FP8 takes Float32 and BFloat16, not Float16"},
		Means: "The feature has no kernel for the datatypes that were measured. Jobs that send these " +
			"take the usual way.",
		Causes: []string{"FP8: fp16 or integers. DDA: fp64, fp8 or integers.",
			"`benchmark.datatypes` does not have what the jobs send."},
		Look: []string{explain, "kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.benchmark.datatypes}'"},
		Do:   []string{"Measure what the job sends; its gradients are mostly bf16 or fp32, whatever its weights are."},
		Ends: "With a datatype that has it."},
	"OpUnsupported": {
		Seen: []string{"DDA takes the operation Sum, not Avg", "FP8 takes the operation Sum, not Max"},
		Means: "The reduction is another one than Sum. Frameworks that average by `Avg` within the library get " +
			"neither feature.",
		Causes: []string{"The framework calls with ncclAvg (PyTorch's FSDP and DDP may) or a pre-multiplied sum.",
			"Max and Min, as for loss scaling: small calls, which do not matter."},
		Look: []string{explain,
			"agent explain --flavor rcclx-dev --collective AllReduce --datatype bf16 --op Avg --ranks 8"},
		Do:       []string{"In jobs: sum, then divide; the same result, with the feature."},
		Escalate: "The framework's owner.",
		Ends:     "With the operation Sum."},
	"Alignment": {
		Seen: []string{"the size is no multiple of 16 bytes",
			"over the flat limit, the size must split into 8 parts that are multiples of 16 bytes"},
		Means: "DDA reads 16 bytes at a time. Odd sizes take ring or tree; the same job then has fast and slow " +
			"calls side by side.",
		Causes: []string{"`benchmark.minSizeBytes` with a factor or step that gives odd sizes.",
			"Uneven buffers: the last bucket of a model, variable-length batches."},
		Look: []string{explain + " dda", "kubectl get cg -n NAMESPACE GROUP -o " +
			"jsonpath='{.spec.benchmark.minSizeBytes} {.spec.benchmark.sizeFactor} {.spec.benchmark.sizeStepBytes}'"},
		Do:       []string{"In jobs pad buckets to multiples of 128 bytes (16 for each of 8 ranks)."},
		Escalate: "The framework's owner, for bucket sizes.",
		Ends:     "With sizes that divide."},
	"UnknownVariable": {
		Seen: []string{"library flavor rcclx-dev never reads RCCL_DDA_ENABLE: use spec.dda.mode"},
		Means: "The variable stands in the ranks' environment and no line of this library looks at it. " +
			"Guides for other forks name it.",
		Causes: []string{"A name from a blog or from AMD's RCCL that RCCLX does not have, or the other way round.",
			"A typing error.", "A variable of a newer release."},
		Look: []string{explain + " env",
			"agent explain --flavor rcclx-dev --env RCCL_DDA_ENABLE=1              # remarks and the right name"},
		Do:   []string{"Look into the jobs' manifests for the same name: there nothing warns of it."},
		Ends: "When it is gone from `runtime.env`, or is a name that this library knows."},
	"FlavorUnsupported": {
		Seen: []string{"library flavor rccl has no FP8 transport: use an RCCLX library",
			"library flavor nccl has no DDA"},
		Means: "This family of libraries does not have the feature in any build. Which family it is, was told by the " +
			"file itself, not by its name.",
		Causes: []string{"The image brings AMD's RCCL (or NVIDIA's NCCL) and not RCCLX.",
			"PyTorch's own copy was loaded instead of the RCCLX beside it.",
			"rcclx-stable: FP8 for single collectives is not possible, only for all."},
		Look: []string{explain + "   # line library", "kubectl get commtask -n NAMESPACE GROUP.NODE -o " +
			"jsonpath='{.status.run.library}'   # path, flavor, version"},
		Do: []string{"Two libraries in one image: name the RCCLX file in `runtime.libraryPath`, and preload the " +
			"same one in jobs."},
		Escalate: "The image's owner.",
		Ends:     "With a run that loads an RCCLX."},
	"Disabled": {Plain: true, Means: "The spec does not ask for it, so it was switched off by its variable and not " +
		"measured. For AMD's RCCL and RCCLX that matters: without the variable DDA would be on by default."},
	"NotApplied": {
		Seen: []string{
			"while FP8 is on, AllGather goes peer to peer and never to DDA",
			"RCCL_DDA_NRANKS=4 is set from the CommGroup's settings instead: change those and remove the variable"},
		Means: "Something else took its place: another setting has the call, or the spec's own field overrides your " +
			"variable. Or the run ended before it came to this variant.",
		Causes: []string{"FP8 is on, and changes the way of AllGather at all sizes.",
			"A variable in `runtime.env` that spec.dda or spec.lowPrecision set themselves.",
			"The run failed in Baseline: then nothing else was measured."},
		Look: []string{explain,
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.runtime.env} {.spec.dda} {.spec.lowPrecision}'",
			status + "                    # Validated: did the run come to its end"},
		Do:   []string{"Say it in the spec's field, and take the variable out."},
		Ends: "With a run that gets to it."},
	"Unknown": {
		Seen: []string{"the library's flavor is not known, so nothing can be said of its gates: name a library that " +
			"agent explain lists"},
		Means: "The library was not identified, or this release of it decides by a table of its own that is " +
			"not public: nothing is said of what acts. The message says which. Missing knowledge is no yes. " +
			"Measurements and verdict stand all the same.",
		Causes: []string{"RCCL 2.30 and up with DDA: its largest size is a " +
			"table by GPU and release, until `dda.allReduceTreeMaxBytes` sets one.",
			"A build without the strings by which flavors are told apart (stripped, patched).",
			"A net plugin or wrapper under the library's name.", "A release that is newer than this operator.",
			"Simulated ranks that imitate nothing."},
		Look: []string{"kubectl get commtask -n NAMESPACE GROUP.NODE -o jsonpath='{.status.run.library}'",
			explain, runLogs},
		Do:       []string{"Compare with Baseline by hand in the results: what is faster, acts."},
		Escalate: "The operator's authors with a support bundle, where it is a released library.",
		Ends:     "With a run whose library and limits are known."},
	"TailHazard": {
		Seen: []string{
			"FP8 gave wrong elements with AllReduce at counts that are no multiple of 128 x ranks (AllReduce) " +
				"or 128 (ReduceScatter) (TailHazard): it is off for them; if every job pads its counts, " +
				"set publish.jobCounts to Padded.",
			"All 4 requested settings are in effect within their gates, confirmed by the A/B run. " +
				"Results are not usable with lowPrecision.AllReduce (TailHazard); see status.settings of the CommRun."},
		Means: "FP8 works on blocks of 128 elements a rank. At counts that do not divide, the last elements " +
			"come out wrong, and the library returns success. A fault of the library, known and always there; " +
			"the GPUs are well. [Decision 7](../../decisions/0007-fp8-only-where-data-is-proven.md).",
		Causes: []string{"The library's FP8 AllReduce and ReduceScatter leave the tail unwritten.",
			"Not a cause: hardware. Wrong elements at counts that do divide are [WrongData](WrongData.md)."},
		Look: []string{
			explain + " lowPrecision   # which collectives, at which counts",
			results + "   # the errors beside the sizes",
			published + "   # is FP8 off for them (comments in rccl.conf)"},
		Do: []string{"Jobs that set `RCCL_LOW_PRECISION_ENABLE*` by hand: " +
			"ask their owners today whether each buffer is padded. If not, their gradients have wrong tails.",
			"Frameworks that bucket gradients can pad the bucket: `128 x ranks` elements."},
		Escalate: "The library's authors; owners of jobs with FP8.",
		Ends:     "With a library that has it mended (the next run shows it), or with FP8 off for these collectives."},
	"Overflow": {
		Seen: []string{"activations: of 1048576 elements 12 became NaN and 340 became infinite or were clipped: " +
			"FP8 casts without scaling, values over 240 (gfx942) or 448 (gfx950) leave its range"},
		Means: "Random data of the range of activations did not survive FP8. With such tensors a job gets NaN or " +
			"clipped sums; with small gradients it may never happen.",
		Causes: []string{"E4M3 holds 240 (FNUZ, MI300) or 448 (OCP, MI350), sums over ranks included.",
			"The library scales nothing: that is the caller's work."},
		Look: []string{results, explain + " lowPrecision", "kubectl get cgr -n NAMESPACE RUN -o " +
			"jsonpath='{.status.dataErrors}'   # by collective and size: NaN, overflow, mean and largest error"},
		Do: []string{"FP8 for gradients only, on communicators of their own: activations and " +
			"logits stay in bf16."},
		Escalate: "The model's owner: only they know the range of the tensors.",
		Ends:     "It is a property of the setting; gone where FP8 is off for the collective."},
	"Underflow": {
		Seen: []string{"gradients: mean error 31.40 %, 0.20 % without FP8, usable up to 6.25 %: " +
			"values under 2^-10 become zero"},
		Means: "Small values vanish: gradients without loss scaling lose their tail, and training may stall " +
			"without any error.",
		Causes: []string{"E4M3 has no numbers below about 2^-10; what is smaller becomes zero.",
			"No loss scaling, or a scale that is too small."},
		Look: []string{results, "kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.dataErrors}'   # " +
			"meanErrorPPM of gradients beside Baseline's"},
		Do:       []string{"Watch the share of exact zeros in the job's gradients before and after FP8."},
		Escalate: "The model's owner.",
		Ends:     "It is a property of the setting; gone where FP8 is off for the collective."},
}
