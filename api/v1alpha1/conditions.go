package v1alpha1

// Condition types of a CommGroup. Each is recomputed from the children in every reconcile.
const (
	// ConditionReady is True when every member passed a run of this generation, reports in time, and fits to the
	// others.
	ConditionReady = "Ready"
	// ConditionAccepted is True when the spec can be carried out: nodes match and have GPUs, an image is known.
	ConditionAccepted = "Accepted"
	// ConditionAgentsReporting is True when every member's monitor reported facts that still hold.
	ConditionAgentsReporting = "AgentsReporting"
	// ConditionCompatible is True when versions, models, partitions and xGMI meshes fit together.
	ConditionCompatible = "Compatible"
	// ConditionRunning is True while a run is going on.
	ConditionRunning = "Running"
	// ConditionValidated is True when the last run of this generation passed on every member.
	ConditionValidated = "Validated"
	// ConditionSettingsInEffect is True when each requested setting is in effect and the A/B run confirmed it.
	ConditionSettingsInEffect = "SettingsInEffect"
	// ConditionSettingsPublished is True when the ConfigMap holds the settings of the last run that passed.
	ConditionSettingsPublished = "SettingsPublished"
	// ConditionSimulated is True when any fact or result of this group came from the simulator.
	ConditionSimulated = "Simulated"
)

// Reasons of conditions, events and run results. docs/reasons.md explains each and names the next step.
const (
	ReasonAccepted            = "Accepted"
	ReasonNoNodesMatched      = "NoNodesMatched"
	ReasonTooFewMembers       = "TooFewMembers"
	ReasonNoGPUResource       = "NoGPUResource"
	ReasonRuntimeImageMissing = "RuntimeImageMissing"
	ReasonInvalidSchedule     = "InvalidSchedule"
	ReasonListFailed          = "ListFailed"
	// ReasonHostNetworkNotAllowed says that network.mode Host is asked for in a namespace that may not have it.
	ReasonHostNetworkNotAllowed = "HostNetworkNotAllowed"
	// ReasonPodOverridesNotAllowed says that runtime.pod asks for what a CommGroup's author may not hand to a pod.
	ReasonPodOverridesNotAllowed = "PodOverridesNotAllowed"

	ReasonAllReporting      = "AllReporting"
	ReasonWaitingForAgents  = "WaitingForAgents"
	ReasonAgentNotReporting = "AgentNotReporting"
	// ReasonCommTasksRefused says that the API server refused a CommTask.
	ReasonCommTasksRefused = "CommTasksRefused"

	ReasonAllCompatible        = "AllCompatible"
	ReasonMixedROCmVersions    = "MixedROCmVersions"
	ReasonMixedDriverVersions  = "MixedDriverVersions"
	ReasonMixedModels          = "MixedModels"
	ReasonMixedPartitions      = "MixedPartitions"
	ReasonTopologyFault        = "TopologyFault"
	ReasonGPUCountMismatch     = "GPUCountMismatch"
	ReasonNoGPUs               = "NoGPUs"
	ReasonSysfsUnreadable      = "SysfsUnreadable"
	ReasonFactsUnknown         = "FactsUnknown"
	ReasonHealthDegraded       = "HealthDegraded"
	ReasonDriverNotLoaded      = "DriverNotLoaded"
	ReasonMixedLibraryVersions = "MixedLibraryVersions"
	// ReasonMixedFP8Encodings says that GPUs of the group encode FP8 differently (gfx942 FNUZ, gfx950 OCP).
	ReasonMixedFP8Encodings = "MixedFP8Encodings"
	ReasonMixedFirmware     = "MixedFirmware"
	// ReasonROCmTooOld says that the ROCm of the run's container is older than its GPUs need.
	ReasonROCmTooOld = "ROCmTooOld"
	// ReasonDriverMismatch says that driver and ROCm are further apart than AMD supports.
	ReasonDriverMismatch = "DriverMismatch"
	// ReasonInventoryMismatch says that labels of the node contradict what its monitor sees.
	ReasonInventoryMismatch = "InventoryMismatch"

	ReasonRunInProgress = "RunInProgress"
	ReasonRunFinished   = "RunFinished"
	ReasonNeverRan      = "NeverRan"
	// ReasonResultsStale says that nodes were rebooted or changed after they were measured.
	ReasonResultsStale = "ResultsStale"
	ReasonSuspended    = "Suspended"
	// ReasonWritesRefused is a remark, and an event: the API server refused something else that the group needs.
	ReasonWritesRefused = "WritesRefused"
	ReasonWaiting       = "WaitingForPreconditions"
	// ReasonNoCommGroup is an event of a CommRun: the CommGroup that it names does not exist.
	ReasonNoCommGroup = "NoCommGroup"

	ReasonAllPassed           = "AllPassed"
	ReasonInconclusive        = "Inconclusive"
	ReasonSlowLink            = "SlowLink"
	ReasonSlowGPU             = "SlowGPU"
	ReasonSlowNode            = "SlowNode"
	ReasonBelowThreshold      = "BelowThreshold"
	ReasonRegression          = "Regression"
	ReasonRankHung            = "RankHung"
	ReasonWrongData           = "WrongData"
	ReasonRankDied            = "RankDied"
	ReasonInitFailed          = "InitFailed"
	ReasonCollectiveFailed    = "CollectiveFailed"
	ReasonLibraryMissing      = "LibraryMissing"
	ReasonLibraryTooOld       = "LibraryTooOld"
	ReasonSymbolMissing       = "SymbolMissing"
	ReasonPreconditionFailed  = "PreconditionFailed"
	ReasonInsufficientMemory  = "InsufficientMemory"
	ReasonRequirementNotMet   = "RequirementNotMet"
	ReasonRunPodFailed        = "RunPodFailed"
	ReasonRunPodUnschedulable = "RunPodUnschedulable"
	ReasonRunPodNotStarted    = "RunPodNotStarted"
	ReasonRunDeadlineExceeded = "RunDeadlineExceeded"
	ReasonSuperseded          = "Superseded"
	// ReasonInterrupted says that the run pod was told to stop before the run was through.
	ReasonInterrupted = "Interrupted"
	ReasonMemberLost  = "MemberLost"
	// ReasonSessionIdle says that a node gave its GPUs back since no task of the group's stage came.
	ReasonSessionIdle = "SessionIdle"
	// ReasonNodeBusy says that other pods held the node's GPUs, or another CommGroup's run, so that no run was started
	// there.
	ReasonNodeBusy = "NodeBusy"
	// ReasonPreempted says that the cluster took the run pod away for others, or to drain the node.
	ReasonPreempted = "Preempted"
	// ReasonWaitingForQueue says that Kueue had not admitted the run pod in time.
	ReasonWaitingForQueue = "WaitingForQueue"

	// Reasons of the group's stage of a run.
	ReasonWaitingForMembers = "WaitingForMembers"
	// ReasonGroupStepFailed says that a communicator over several nodes failed and no better word is known.
	ReasonGroupStepFailed = "GroupStepFailed"
	// ReasonHangAcrossNodes says that a communicator over several nodes did not form or did not end a step in time.
	ReasonHangAcrossNodes = "HangAcrossNodes"
	ReasonSlowGroup       = "SlowGroup"
	ReasonSlowPair        = "SlowPair"
	// ReasonSlowRail says that one GPU's way to other nodes is slow.
	ReasonSlowRail = "SlowRail"
	// ReasonSlowCommunicator says that one communicator of a dimension of the mesh is far slower than the others of it.
	ReasonSlowCommunicator = "SlowCommunicator"
	// ReasonTransportFallback says that data went over TCP where network.requireTransport asks for RDMA.
	ReasonTransportFallback = "TransportFallback"
	// ReasonMixedSettings says that members' ranks take their settings from different variables or files.
	ReasonMixedSettings        = "MixedSettings"
	ReasonMixedAddressFamilies = "MixedAddressFamilies"
	// ReasonDuplicateAddress: several members have one address.
	ReasonDuplicateAddress = "DuplicateAddress"
	// ReasonClockSkew is the event that the clocks of members are apart.
	ReasonClockSkew = "ClockSkew"
	// ReasonMeshMismatch says that the mesh does not fit the ranks that are there.
	ReasonMeshMismatch = "MeshMismatch"
	// ReasonCulpritFound is the event that the search named a culprit.
	ReasonCulpritFound = "CulpritFound"

	ReasonInEffect     = "InEffect"
	ReasonNotInEffect  = "NotInEffect"
	ReasonNotVerified  = "NotVerified"
	ReasonNotRequested = "NotRequested"

	ReasonPublished         = "Published"
	ReasonPublishOff        = "PublishOff"
	ReasonNotProven         = "NotProven"
	ReasonSimulatedResults  = "SimulatedResults"
	ReasonConfigMapNotOwned = "ConfigMapNotOwned"
	// ReasonTailHazard says that FP8 gave wrong elements at the end of some counts, so that it is not published for
	// them.
	ReasonTailHazard = "TailHazard"
	// ReasonResultsNotUsable says that FP8 gave NaN, infinite or clipped values, or too large an error, so that it is
	// not published.
	ReasonResultsNotUsable = "ResultsNotUsable"
	// ReasonNotWorthIt says that a setting that the spec requires is not faster than Baseline, so that nothing is
	// published.
	ReasonNotWorthIt = "NotWorthIt"
	// ReasonConfigMapChanged says that someone changed the published ConfigMap and that no run now proves what to put
	// back.
	ReasonConfigMapChanged = "ConfigMapChanged"
	// ReasonVariableNotPublishable says that a variable's name or value may not be in the published settings.
	ReasonVariableNotPublishable = "VariableNotPublishable"
	// ReasonConfigMapNameInvalid says that no ConfigMap can have the name that the settings shall be published under.
	ReasonConfigMapNameInvalid = "ConfigMapNameInvalid"
	// ReasonConfigMapNotWritten says that the API server refused the ConfigMap.
	ReasonConfigMapNotWritten = "ConfigMapNotWritten"
	// ReasonSettingsRestored is the event that a ConfigMap which someone changed holds the proven settings again.
	ReasonSettingsRestored = "SettingsRestored"

	ReasonSimulated = "Simulated"
	ReasonHardware  = "Hardware"

	ReasonReady     = "Ready"
	ReasonDeleting  = "Deleting"
	ReasonCleanedUp = "CleanedUp"
	// ReasonCleanupTimedOut says that the finalizer was released although something was still there.
	ReasonCleanupTimedOut = "CleanupTimedOut"
)

// Reasons why a node's network does not do for the group's stage (CommTask.status.session.reason).
const (
	// ReasonInterfaceNotFound: network.interface matches nothing on the node.
	ReasonInterfaceNotFound = "InterfaceNotFound"
	// ReasonInterfaceNotUsable: the interface is there, but down, the loopback one, or one that the library cannot be
	// told.
	ReasonInterfaceNotUsable = "InterfaceNotUsable"
	// ReasonInterfaceAmbiguous: several interfaces match.
	ReasonInterfaceAmbiguous = "InterfaceAmbiguous"
	// ReasonNoAddressOfFamily: the interface has no address that peers can reach of the family asked for.
	ReasonNoAddressOfFamily = "NoAddressOfFamily"
	// ReasonHCANotFound: an RDMA device, or a port of it, is not there.
	ReasonHCANotFound = "HCANotFound"
	// ReasonHCANotUsable: an RDMA device is there, but its port is down or its file is not in the pod.
	ReasonHCANotUsable = "HCANotUsable"
	// ReasonGIDNotUsable: network.gidIndex is an empty entry, or past the table's end.
	ReasonGIDNotUsable = "GIDNotUsable"
	// ReasonPortRangeNotUsable: network.portRange is too small, not in force, or has no port left.
	ReasonPortRangeNotUsable = "PortRangeNotUsable"
)

// Reasons of gating: of its events, and of the condition CommValidated of Nodes (the first two).
const (
	// ReasonCommFailed and ReasonCommPassed are those of the Node's condition.
	ReasonCommFailed = "CommFailed"
	ReasonCommPassed = "CommPassed"
	// ReasonNodeGated and ReasonNodeUngated are events: a node got the group's mark, or lost it.
	ReasonNodeGated   = "NodeGated"
	ReasonNodeUngated = "NodeUngated"
	// ReasonBreakerOpen and ReasonBreakerClosed are events of gating's circuit breaker.
	ReasonBreakerOpen   = "BreakerOpen"
	ReasonBreakerClosed = "BreakerClosed"
)

// Reasons why a setting is or is not in effect (SettingStatus.Reason); the gates are facts of the library's source.
const (
	SettingReasonActive              = "Active"
	SettingReasonNotBuilt            = "NotBuilt"
	SettingReasonMultiNode           = "MultiNode"
	SettingReasonRankCount           = "RankCount"
	SettingReasonBelowThreshold      = "BelowThreshold"
	SettingReasonAboveThreshold      = "AboveThreshold"
	SettingReasonDatatypeUnsupported = "DatatypeUnsupported"
	SettingReasonOpUnsupported       = "OpUnsupported"
	SettingReasonUnknownVariable     = "UnknownVariable"
	SettingReasonFlavorUnsupported   = "FlavorUnsupported"
	SettingReasonDisabled            = "Disabled"
	SettingReasonNotApplied          = "NotApplied"
	SettingReasonUnknown             = "Unknown"
	SettingReasonAlignment           = "Alignment"
	SettingReasonTakenByFP8          = "TakenByFP8"
)

// Reasons why a node's result is stale (RunStaleness.Reason).
const (
	StaleNodeRebooted    = "NodeRebooted"
	StaleDriverChanged   = "DriverChanged"
	StaleROCmChanged     = "ROCmChanged"
	StaleRepartitioned   = "Repartitioned"
	StaleFirmwareChanged = "FirmwareChanged"
	StaleGPUsChanged     = "GPUsChanged"
)

// Warnings of a setting (SettingStatus.Warnings): what it does to data where it is in effect. Each makes its results
// NotUsable.
const (
	// WarningWrongData: elements are wrong that nothing explains.
	WarningWrongData = ReasonWrongData
	// WarningTailHazard: wrong elements at counts that FP8 does not divide evenly over ranks and blocks.
	WarningTailHazard = ReasonTailHazard
	// WarningOverflow: values became NaN or infinite, or were clipped.
	WarningOverflow = "Overflow"
	// WarningUnderflow: values are off by more, on average, than rounding explains, since small ones became zero.
	WarningUnderflow = "Underflow"
)
