package compat

// The rules' data. A row that is new or wrong is changed here; hack/compatdoc writes docs/compatibility.md from it.

// minimumRow: GPUs of a target need a ROCm user space of at least this version.
type minimumRow struct {
	target  string
	models  string
	rocm    Version // of no numbers: any will do
	level   Level
	source  string
	checked string // when the source was read, year and month
}

const olderSource = "RCCLX's announcement names MI300 and MI350 alone"

var minimums = []minimumRow{
	{
		target: "gfx942", models: "MI300A, MI300X, MI308X, MI325X", rocm: version(6, 4), level: Error,
		checked: "2026-11",
		source: "RCCLX's announcement (ROCm 6.4 for MI300; its build scripts take torch for ROCm 6.4); " +
			"below HIP 6.4.43484 RCCLX refuses to start without HSA_NO_SCRATCH_RECLAIM (torchcomms " +
			"comms/rcclx/develop/projects/rccl src/rccl_wrap.cc validHsaScratchEnvSetting)",
	},
	{
		target: "gfx950", models: "MI350X, MI355X, MI350P", rocm: version(7, 0), level: Error, checked: "2026-11",
		source: "RCCLX's announcement and ROCm 7.0.0's release (hipFFT 1.0.20: gfx950 added) say 7.0; " +
			"the driver's documentation says 7.0.1 (ROCm/amdgpu-docs@67902e2, release 30.10.1), so 7.0.0 passes here " +
			"and 7.0.1 is the better choice; for MI350P AMD's GPU operator 1.5.1 asks for ROCm 7.13 and amdgpu 6.19 " +
			"(ROCm/gpu-operator@6df13c1 docs/releasenotes.md), which is not judged",
	},
	{target: "gfx90a", models: "MI210, MI250, MI250X", level: Error, checked: "2026-11", source: olderSource},
	{target: "gfx908", models: "MI100", level: Error, checked: "2026-11", source: olderSource},
	{target: "gfx906", models: "MI50, MI60", level: Error, checked: "2026-11", source: olderSource},
	{target: "gfx900", models: "MI25", level: Error, checked: "2026-11", source: olderSource},
}

// driverRow: a release of the amdgpu module, and the user spaces that AMD supports with it.
type driverRow struct {
	// module is the first version of /sys/module/amdgpu/version that the row is for, within the same major.minor.
	module Version
	// name of the driver's release, and the ROCm release that it came with.
	name string
	rocm Version
	// oldest and newest ROCm release of the published row. A release that is newer than the page cannot be in it: then
	// the year that AMD grants counts (yearRule).
	oldest, newest Version
	source         string
}

const matrix2025 = "ROCm installation guide, user and AMD GPU Driver support matrix of 2025-09-17"

const matrix714 = "ROCm 7.14's compatibility matrix (ROCm/legacy-rocm-build@8eb3b62 " +
	"docs/compatibility/include/system-instinct.rst: drivers 30.10 to 31.40.1)"

var drivers = []driverRow{
	{module: version(6, 7), name: "ROCm 6.1", rocm: version(6, 1), oldest: version(5, 7), newest: version(6, 4),
		source: matrix2025},
	{module: version(6, 8), name: "ROCm 6.2", rocm: version(6, 2), oldest: version(6, 0), newest: version(7, 0),
		source: matrix2025},
	{module: version(6, 10), name: "ROCm 6.3", rocm: version(6, 3), oldest: version(6, 1), newest: version(7, 0),
		source: matrix2025},
	{module: version(6, 12), name: "ROCm 6.4", rocm: version(6, 4), oldest: version(6, 1), newest: version(7, 0),
		source: matrix2025},
	{module: version(6, 14), name: "30.10", rocm: version(7, 0), oldest: version(6, 2), newest: version(7, 0),
		source: matrix2025 + "; ROCm/amdgpu-docs@67902e2 docs/compatibility/compatibility-matrix.rst"},
	{module: version(6, 16), name: "30.20", rocm: version(7, 1), oldest: version(6, 3), newest: version(7, 1),
		source: "no published row was found: the year that AMD grants, back from 2025-10-30"},
	{module: version(6, 16, 13), name: "30.30", rocm: version(7, 2), oldest: version(6, 3), newest: version(7, 2),
		source: "ROCm/amdgpu-docs#97 docs/compatibility/compatibility-matrix.rst (30.30.2 and 30.30.3)"},
	{module: version(6, 18), name: "31.10 to 31.30", rocm: version(7, 14),
		oldest: version(6, 3), newest: version(7, 14),
		source: matrix714 + "; 6.18.3 is between the modules of 30.30 and 31.40, and which of these three it is was " +
			"not found: from ROCm 6.3 as the driver before, and the year is counted from 7.14"},
	{module: version(6, 19), name: "31.40", rocm: version(7, 14), oldest: version(6, 4), newest: version(7, 14),
		source: matrix714 + "; its number is in the version (6.19.14.31400000, ROCm 7.14's installation page) and in " +
			"ROCm/gpu-operator#610; from ROCm 6.4: the year that AMD grants, back from 2026-07-16"},
}

// yearRule is the first ROCm release that may be a year away from the driver (the same page); before, it was two
// releases.
var yearRule = version(6, 4)

// releaseRow: when a ROCm release came out.
type releaseRow struct {
	rocm Version
	date string // year-month-day
}

// releases, oldest first, by their tags in ROCm's repositories. One that is not among them is judged only where the
// known one before it is too new itself.
var releases = []releaseRow{
	{version(6, 1), "2024-04-16"},
	{version(6, 2), "2024-08-02"},
	{version(6, 3), "2024-12-03"},
	{version(6, 4), "2025-04-11"},
	{version(7, 0), "2025-09-16"},
	{version(7, 1), "2025-10-30"},
	{version(7, 2), "2026-01-21"},
	// previews 7.9 to 7.13 came between, and are not judged where they may be within the year
	{version(7, 14), "2026-07-16"},
	{version(10, 0), "2026-08-26"}, // the tag therock-10.0 of ROCm/rocm-systems
}

// scratchRow: the MEC firmware from which the library starts on GPUs of a target without HSA_NO_SCRATCH_RECLAIM=1,
// where the HIP runtime is new enough, too.
type scratchRow struct {
	target   string
	firmware uint64 // as KFD writes it (fw_version)
	source   string
}

const scratchSource = "torchcomms comms/rcclx/develop/projects/rccl src/rccl_wrap.cc validHsaScratchEnvSetting, " +
	"which looks at no other target"

var scratch = []scratchRow{
	{"gfx942", 177, scratchSource},
	{"gfx950", 24, scratchSource},
}

// slowScratchRow: the HIP runtime from which the library is slow on GPUs of a target without HSA_NO_SCRATCH_RECLAIM=1.
type slowScratchRow struct {
	target      string
	runtimeCode int // hipRuntimeGetVersion
	rocm        Version
	source      string
}

var slowScratch = []slowScratchRow{
	{"gfx90a", 71300000, version(7, 13),
		"rocm-systems projects/rccl/CHANGELOG.md, known issues of RCCL 2.30.4 and 2.30.7 (read 2026-11)"},
}

// encodingRow: how the matrix cores of a target encode FP8 (E4M3).
type encodingRow struct{ target, encoding, source string }

const (
	encodingFNUZ = "FNUZ"
	encodingOCP  = "OCP"

	encodingSource = "torchcomms comms/rcclx/develop src/include/rccl_float8.h (FNUZ on gfx942, OCP on others); " +
		"HIP's documentation of FP8 numbers (FNUZ on gfx94x, OCP on gfx950 and gfx12)"
)

var encodings = []encodingRow{
	{"gfx942", encodingFNUZ, encodingSource},
	{"gfx950", encodingOCP, encodingSource},
	{"gfx1200", encodingOCP, encodingSource},
	{"gfx1201", encodingOCP, encodingSource},
}
