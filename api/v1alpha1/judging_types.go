package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Statistic over the repeats of one measurement of bus bandwidth.
// +kubebuilder:validation:Enum=Median;Min;Max;P5
type Statistic string

// The statistics. P5: 95 of 100 repeats were faster.
const (
	StatisticMedian Statistic = "Median"
	StatisticMin    Statistic = "Min"
	StatisticMax    Statistic = "Max"
	StatisticP5     Statistic = "P5"
)

// JudgingMode says what a comparison does to the verdict.
// +kubebuilder:validation:Enum=Off;Report;Enforce
type JudgingMode string

// The judging modes. Report: the comparison is shown and changes no verdict.
const (
	JudgingOff     JudgingMode = "Off"
	JudgingReport  JudgingMode = "Report"
	JudgingEnforce JudgingMode = "Enforce"
)

// RegressionSpec holds a run against the group's own baseline.
type RegressionSpec struct {
	// mode: Off, Report, or Enforce: a node or group that lost more than maxDropPercent fails.
	// +kubebuilder:default=Report
	// +optional
	Mode JudgingMode `json:"mode,omitempty"`
	// maxDropPercent of bus bandwidth under the baseline.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	// +optional
	MaxDropPercent int32 `json:"maxDropPercent,omitempty"`
}

// CheckState is the outcome of one comparison.
// +kubebuilder:validation:Enum=Met;NotMet;NotMeasured
type CheckState string

// The check states. NotMeasured is never a pass where the comparison is enforced.
const (
	CheckMet         CheckState = "Met"
	CheckNotMet      CheckState = "NotMet"
	CheckNotMeasured CheckState = "NotMeasured"
)

// PerformanceCheck is one measurement held against what was expected.
type PerformanceCheck struct {
	// source of the expectation: spec (the person's threshold), a reference profile's name, or baseline; reference
	// where no profile is of exactly what was measured.
	// +kubebuilder:validation:MaxLength=64
	Source string `json:"source"`
	// measurement that was compared, for example "Baseline AllReduce Float32 8589934592 B in place, median".
	// +kubebuilder:validation:MaxLength=160
	Measurement string `json:"measurement"`
	// step of the measurement; absent where it is of none.
	// +optional
	Step *Step `json:"step,omitempty"`
	// state of the comparison.
	State CheckState `json:"state"`
	// enforced: NotMet and NotMeasured decide the verdict.
	// +kubebuilder:validation:Enum=Report;Enforce
	Mode JudgingMode `json:"mode"`
	// measuredMBps and expectedMBps are bus bandwidth in 10^6 bytes per second; percent is the first of the second.
	// +optional
	MeasuredMBps *int64 `json:"measuredMBps,omitempty"`
	// +optional
	ExpectedMBps *int64 `json:"expectedMBps,omitempty"`
	// +optional
	Percent *int32 `json:"percent,omitempty"`
	// causes that are likely, the likeliest first, as things to look at; only where not met.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=200
	// +optional
	Causes []string `json:"causes,omitempty"`
	// node that the measurement is of; absent for the group.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
}

// BaselineStatus is the group's own baseline: what runs that passed have measured with one ROCm and library build.
type BaselineStatus struct {
	// key that the baseline holds for: ROCm of the runs' containers, flavor and build of the library, model, partition
	// and ranks. A run with another key starts a new baseline.
	// +kubebuilder:validation:MaxLength=256
	Key string `json:"key"`
	// since is when the baseline began, runs how many passed runs it is made of.
	Since metav1.Time `json:"since"`
	Runs  int32       `json:"runs"`
	// lastRunID that it took in.
	// +kubebuilder:validation:MaxLength=63
	LastRunID string `json:"lastRunID"`
	// series of the baseline: bus bandwidth at the largest size.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=96
	// +optional
	Series []BaselineSeries `json:"series,omitempty"`
	// firstRunID that the baseline began with; absent in one of before there was this field.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	FirstRunID string `json:"firstRunID,omitempty"`
	// previous key, of the baseline before this one.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Previous string `json:"previous,omitempty"`
}

// BaselineSeries is one measurement of a baseline.
type BaselineSeries struct {
	// name of the measurement, for example "Baseline AllReduce BFloat16", with its span where it is not Node.
	// +kubebuilder:validation:MaxLength=96
	Name string `json:"name"`
	// sizeBytes of the message.
	SizeBytes int64 `json:"sizeBytes"`
	// samplesMBps are the members' medians of the last passed runs, the newest last.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	SamplesMBps []int64 `json:"samplesMBps"`
	// bestMBps is the highest median of samples that a run was held against since the baseline began: a level that
	// falls a little from run to run is held against that. Absent until there are three samples.
	// +optional
	BestMBps *int64 `json:"bestMBps,omitempty"`
}

// WorthState says whether a setting pays at the measured sizes. One whose results are not usable is NotWorth, however
// fast it is.
// +kubebuilder:validation:Enum=Worth;Mixed;NotWorth;Unknown
type WorthState string

// The worth states. Mixed: faster at some sizes and slower at others.
const (
	WorthYes     WorthState = "Worth"
	WorthMixed   WorthState = "Mixed"
	WorthNo      WorthState = "NotWorth"
	WorthUnknown WorthState = "Unknown"
)

// SettingAdvice is what the A/B numbers say of one setting and collective.
type SettingAdvice struct {
	// name of the setting, as in settings, with the datatype: dda.AllReduce/BFloat16.
	// +kubebuilder:validation:MaxLength=160
	Name string `json:"name"`
	// state over the sizes at which the setting is in effect.
	State WorthState `json:"state"`
	// bands of neighbouring sizes with the same outcome, ascending.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Bands []GainBand `json:"bands,omitempty"`
	// errorPPM is the largest relative error that the setting brings, for FP8.
	// +optional
	ErrorPPM *int64 `json:"errorPPM,omitempty"`
	// memoryBytes of device memory that it costs each rank.
	// +optional
	MemoryBytes *int64 `json:"memoryBytes,omitempty"`
	// recommend is what to set, for example "dda.allReduceTreeMaxBytes=8388608" or "off".
	// +kubebuilder:validation:MaxLength=160
	// +optional
	Recommend string `json:"recommend,omitempty"`
	// message says why: what was seen, what it costs, and what nobody measured.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// GainBand is a range of measured sizes over which a setting wins, loses, or does neither.
type GainBand struct {
	// minBytes and maxBytes are the smallest and largest measured size of the band.
	MinBytes int64 `json:"minBytes"`
	MaxBytes int64 `json:"maxBytes"`
	// outcome: Wins, Loses or Even (within the noise of the repeats).
	// +kubebuilder:validation:Enum=Wins;Loses;Even
	Outcome string `json:"outcome"`
	// medianGainPercent is the change of latency against Baseline over the band's sizes: 20 means a fifth less time.
	MedianGainPercent int32 `json:"medianGainPercent"`
}

// PublishChoice says which of the proven settings are published.
// +kubebuilder:validation:Enum=WhereWorthIt;AsRequested
type PublishChoice string

// The publish choices. WhereWorthIt: what is in effect, proven, usable and not slower, with the recommended thresholds.
const (
	PublishWhereWorthIt PublishChoice = "WhereWorthIt"
	PublishAsRequested  PublishChoice = "AsRequested"
)

// RunSummary is one past run.
type RunSummary struct {
	// id, trigger and verdict: see GroupRunStatus.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// +kubebuilder:validation:MaxLength=64
	Trigger string `json:"trigger"`
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Reason     string       `json:"reason,omitempty"`
	StartTime  metav1.Time  `json:"startTime"`
	FinishTime *metav1.Time `json:"finishTime,omitempty"`
	// members that passed, of those that were selected.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Members string `json:"members,omitempty"`
	// gpuMinutes that the run held.
	// +optional
	GPUMinutes int64 `json:"gpuMinutes,omitempty"`
	// measuredNodes are the nodes whose own part of the run held GPUs; absent where none is known to have.
	// +optional
	MeasuredNodes int32 `json:"measuredNodes,omitempty"`
	// busBandwidthMBps of the headline measurement; absent where it was not measured.
	// +optional
	BusBandwidthMBps *int64 `json:"busBandwidthMBps,omitempty"`
	// headline names that measurement, for example Baseline/AllReduce/BFloat16 67108864 B: only runs of one are
	// compared.
	// +kubebuilder:validation:MaxLength=160
	// +optional
	Headline string `json:"headline,omitempty"`
	// groupBusBandwidthMBps of the first communicator over the group, before a culprit was left out, or of what is left
	// where that was not measured: AllReduce at the largest size. groupNodes are the nodes that it was over.
	// +optional
	GroupBusBandwidthMBps *int64 `json:"groupBusBandwidthMBps,omitempty"`
	// +optional
	GroupNodes int32 `json:"groupNodes,omitempty"`
	// baselineKey that the run measured under.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	BaselineKey string `json:"baselineKey,omitempty"`
	// culprit is the first one, in words: "NIC mlx5_1 on node gpu-2".
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Culprit string `json:"culprit,omitempty"`
}

// Trend is where the last runs of one baseline key point.
// +kubebuilder:validation:Enum=Stable;Rising;Falling;Unknown
type Trend string

// The trends.
const (
	TrendStable  Trend = "Stable"
	TrendRising  Trend = "Rising"
	TrendFalling Trend = "Falling"
	TrendUnknown Trend = "Unknown"
)

// BudgetStatus is what runs have used of a day's budget.
type BudgetStatus struct {
	// day in UTC, as 2006-01-02.
	// +kubebuilder:validation:MaxLength=10
	Day string `json:"day"`
	// usedGPUMinutes of runs that are over, on that day.
	UsedGPUMinutes int64 `json:"usedGPUMinutes"`
	// limitGPUMinutes is run.maxGPUMinutesPerDay.
	LimitGPUMinutes int64 `json:"limitGPUMinutes"`
	// lastRunID that was counted.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	LastRunID string `json:"lastRunID,omitempty"`
}

// GatingStatus is what gating did or would do.
type GatingStatus struct {
	// gated nodes carry the mark now.
	Gated int32 `json:"gated"`
	// nodes that are gated, at most 16 by name.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Nodes []string `json:"nodes,omitempty"`
	// breaker: Open where more than gating.maxPercent of the members failed at once, so that no further node is gated.
	// +kubebuilder:validation:Enum=Closed;Open
	// +optional
	Breaker string `json:"breaker,omitempty"`
	// message says why the breaker is open, why mode Enforce works as DryRun, or what could not be done.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}
