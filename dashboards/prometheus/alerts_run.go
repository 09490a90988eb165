package prometheus

import (
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/dashboards/promql"
	"rcclx.io/commgroup-operator/internal/metrics"
)

// count is the series of the pool's members in a state.
func count(state, values string) Series {
	return of(metrics.Members, labels{"state": state}, values)
}

func runAlerts() []Alert {
	return []Alert{runStuck(), runOverdue(), resultsStale(), gatingBreakerOpen()}
}

func runStuck() Alert {
	return Alert{
		Name: "CommGroupRunStuck", Severity: Warning, For: 5 * time.Minute,
		Expr: fmt.Sprintf("time() - %s > 7200 and %s %s unless %s %s > 0",
			promql.Max(promql.Of(metrics.RunStart)), promql.OnGroup(), promql.RunGoesOn(),
			promql.OnGroup(), promql.Max("changes("+promql.Of(metrics.Members)+"[2h])")),
		Summary: "The run of CommGroup " + groupName + " makes no progress",
		Description: "A run of CommGroup " + groupName + " has been at work for {{ $value | humanizeDuration }}, " +
			"and no member started or ended its part in the last 2 hours.",
		Page: Page{
			Meaning: "A run is at work for more than two hours, and in the last two hours no member changed its " +
				"state. Every wait of a run has a deadline, so that this should not be.",
			Impact: "GPUs are held, and there is no verdict.",
			Look: []string{status, members,
				"`kubectl get pods -n NAMESPACE -l rcclx.io/commgroup=GROUP,rcclx.io/role=run -o wide` and their logs",
				"`kubectl logs -n commgroup-system deploy/commgroup-manager --all-containers` - errors " +
					"about the group"},
			Do: []string{"Deadlines longer than two hours (`run.nodeDeadlineSeconds`, `run.membersDeadlineSeconds`) " +
				"explain it: wait.", "Else set `spec.run.state: Suspended` to free the GPUs, collect `kubectl " +
				"commgroup support-bundle`, and set it to `Active` again."},
			Silence: "By group, where long deadlines are meant.",
			Reasons: []string{"RunInProgress", "RunDeadlineExceeded", "WaitingForMembers"},
		},
		Tests: []Test{
			{Name: "three hours without progress", At: 3 * time.Hour,
				Series: []Series{of(metrics.RunActive, nil, "1x240"),
					of(metrics.RunStart, nil, "0x240"), count("pending", "5x240")},
				Fires: []Fired{{Labels: pool, Summary: "The run of CommGroup ml/pool makes no progress",
					Description: "A run of CommGroup ml/pool has been at work for 3h 0m 0s, and no member started or " +
						"ended its part in the last 2 hours."}}},
			{Name: "just past two hours", At: 123 * time.Minute, Pending: 1,
				Series: []Series{of(metrics.RunActive, nil, "1x240"), of(metrics.RunStart, nil, "0x240")}},
			{Name: "members go on", At: 3 * time.Hour, Series: []Series{of(metrics.RunActive, nil, "1x240"),
				of(metrics.RunStart, nil, "0x240"), count("pending", "500-1x240")}},
			{Name: "no run", At: 3 * time.Hour,
				Series: []Series{of(metrics.RunActive, nil, "0x240"), of(metrics.RunStart, nil, "0x240")}},
		},
	}
}

func runOverdue() Alert {
	return Alert{
		Name: "CommGroupRunOverdue", Severity: Warning, For: 5 * time.Minute,
		Expr: fmt.Sprintf("time() - %s > 3600 unless %s %s unless %s %s",
			promql.Max(promql.Of(metrics.NextRun)), promql.OnGroup(), promql.RunGoesOn(), promql.OnGroup(),
			promql.OutOfWork()),
		Summary: "A scheduled run of CommGroup " + groupName + " is overdue",
		Description: "The schedule of CommGroup " + groupName +
			" was due {{ $value | humanizeDuration }} ago and no run has started.",
		Page: Page{
			Meaning: "The schedule's time is more than an hour past, no run is at work, and the group " +
				"is not suspended.",
			Impact: "What is known of the nodes grows old.",
			Look: []string{status, "Condition `Running`: `WaitingForPreconditions` says what is missing",
				"`status.budget` - is the day's GPU time used up?"},
			Do: []string{"See the conditions `Accepted` and `AgentsReporting`.",
				"Raise `run.maxGPUMinutesPerDay`, or start one by hand: `kubectl commgroup run GROUP -n NAMESPACE`."},
			Silence: "By group, while nodes are in maintenance; better set `spec.run.state: Suspended`.",
			Reasons: []string{"WaitingForPreconditions", "NodeBusy"},
		},
		Tests: []Test{
			{Name: "two hours late", At: 2 * time.Hour,
				Series: []Series{of(metrics.NextRun, nil, "0x240"), of(metrics.RunActive, nil, "0x240")},
				Fires: []Fired{{Labels: pool, Summary: "A scheduled run of CommGroup ml/pool is overdue",
					Description: "The schedule of CommGroup ml/pool was due 2h 0m 0s ago and no run has started."}}},
			{Name: "just past an hour", At: 63 * time.Minute, Pending: 1,
				Series: []Series{of(metrics.NextRun, nil, "0x240")}},
			{Name: "a run is at work", At: 2 * time.Hour,
				Series: []Series{of(metrics.NextRun, nil, "0x240"), of(metrics.RunActive, nil, "1x240")}},
			{Name: "due later", At: 2 * time.Hour, Series: []Series{of(metrics.NextRun, nil, "90000x240")}},
		},
	}
}

func resultsStale() Alert {
	return Alert{
		Name: "CommGroupResultsStale", Severity: Warning, For: time.Hour,
		Expr: fmt.Sprintf("%s > 0 unless %s %s unless %s %s",
			promql.Max(promql.Of(metrics.Members, promql.Is("state", "stale"))), promql.OnGroup(), promql.RunGoesOn(),
			promql.OnGroup(), promql.OutOfWork()),
		Summary: "{{ $value }} members of CommGroup " + groupName + " changed after they were measured",
		Description: "{{ $value }} members of CommGroup " + groupName +
			" were rebooted or changed after their last run, and no new run has started for an hour.",
		Page: Page{
			Meaning: "Nodes are not what they were when they were measured (reboot, driver, firmware, partition), " +
				"and the run that should follow by itself has not started within an hour.",
			Impact: "Their results do not count any more; the group is not Ready.",
			Look:   []string{members, status},
			Do: []string{"The condition `Running` says what a run waits for: a monitor, GPUs, or a node " +
				"that is in use.", "After three bad results in a row that were each followed by a change of the " +
				"node, no run starts by itself: mend the node, then `kubectl commgroup run GROUP -n NAMESPACE`."},
			Silence: "By group, during a rolling update of the nodes.",
			Reasons: []string{"ResultsStale"},
		},
		Tests: []Test{
			{Name: "two for 70 minutes", At: 70 * time.Minute, Series: []Series{count("stale", "2x90")},
				Fires: []Fired{{Labels: pool,
					Summary: "2 members of CommGroup ml/pool changed after they were measured",
					Description: "2 members of CommGroup ml/pool were rebooted or changed after their last run, " +
						"and no new run has started for an hour."}}},
			{Name: "for half an hour", At: 30 * time.Minute, Pending: 1, Series: []Series{count("stale", "2x90")}},
			{Name: "none", At: 70 * time.Minute, Series: []Series{count("stale", "0x90"), count("passed", "4x90")}},
		},
	}
}

func gatingBreakerOpen() Alert {
	return Alert{
		Name: "CommGroupGatingBreakerOpen", Severity: Critical,
		Expr:    promql.Max(promql.Of(metrics.BreakerOpen)) + " == 1",
		Summary: "Too many members of CommGroup " + groupName + " failed at once: gating marks no further node",
		Description: "More members of CommGroup " + groupName + " failed at once than gating.maxPercent allows, " +
			"so that the cause is probably shared. No further node is marked.",
		Page: Page{
			Meaning: "More than `gating.maxPercent` of the members failed at once. Gating stops marking, " +
				"since an image, a driver or a switch is likelier the cause than so many nodes.",
			Impact: "Nodes that failed stay open for jobs.",
			Look: []string{status,
				"What the culprits share: image, library build, driver, switch, threshold (`status.inventory`)"},
			Do: []string{"Mend the shared cause, then ask for a run.",
				"Where the nodes really are bad, raise `gating.maxPercent`."},
			Silence: "By group, while the shared cause is mended.",
			Reasons: []string{"BreakerOpen"},
		},
		Tests: []Test{
			{Name: "open", At: time.Minute, Series: []Series{of(metrics.BreakerOpen, nil, "1x10")},
				Fires: []Fired{{Labels: pool,
					Summary: "Too many members of CommGroup ml/pool failed at once: gating marks no further node",
					Description: "More members of CommGroup ml/pool failed at once than gating.maxPercent allows, " +
						"so that the cause is probably shared. No further node is marked."}}},
			{Name: "closed", At: time.Minute, Series: []Series{of(metrics.BreakerOpen, nil, "0x10")}},
		},
	}
}

func settingAlerts() []Alert {
	setting := func(requested, effective, verified, reason, values string) Series {
		return of(metrics.Setting, labels{"setting": "dda.AllReduce", "requested": requested, "effective": effective,
			"verified": verified, "reason": reason}, values)
	}
	by := []string{"setting", "effective", "verified", "reason"}
	required := promql.Is("requested", "Required")
	return []Alert{
		{
			Name: "CommGroupSettingNotEffective", Severity: Warning, For: 5 * time.Minute,
			Expr: promql.Max(promql.Of(metrics.Setting, required, promql.In("effective", "NotInEffect", "Unknown")),
				by...) + " or " + promql.Max(promql.Of(metrics.Setting, required,
				promql.In("effective", "InEffect", "Partial"), promql.Is("verified", "NotConfirmed")), by...),
			Summary: "{{ $labels.setting }} is Required and not in effect in CommGroup " + groupName,
			Description: "Setting {{ $labels.setting }} of CommGroup " + groupName + " is Required; effective: " +
				"{{ $labels.effective }}, verified: {{ $labels.verified }}, reason: {{ $labels.reason }}.",
			Page: Page{
				Meaning: "A setting that the spec requires is not in effect by the library's gates, or the A/B " +
					"measurement does not show it.",
				Impact: "Jobs run without it and are slower; the settings are not published.",
				Look:   []string{explain, status},
				Do: []string{"The page of the setting's reason is below: another build, other ranks, other sizes " +
					"or datatypes.", "Ask for `Preferred` where the group may do without."},
				Silence: "By `setting`, until the library is replaced.",
				Reasons: append([]string{"RequirementNotMet", "NotInEffect", "NotVerified"}, toMend(settings)...),
			},
			Tests: []Test{
				{Name: "not built", At: 6 * time.Minute,
					Series: []Series{setting("Required", "NotInEffect", "Unknown", "NotBuilt", "1x20")},
					Fires: []Fired{{Labels: pool.with(labels{"setting": "dda.AllReduce",
						"effective": "NotInEffect", "verified": "Unknown", "reason": "NotBuilt"}),
						Summary: "dda.AllReduce is Required and not in effect in CommGroup ml/pool",
						Description: "Setting dda.AllReduce of CommGroup ml/pool is Required; effective: " +
							"NotInEffect, verified: Unknown, reason: NotBuilt."}}},
				{Name: "not confirmed", At: 6 * time.Minute,
					Series: []Series{setting("Required", "Partial", "NotConfirmed", "AboveThreshold", "1x20")},
					Fires: []Fired{{Labels: pool.with(labels{"setting": "dda.AllReduce",
						"effective": "Partial", "verified": "NotConfirmed", "reason": "AboveThreshold"}),
						Summary: "dda.AllReduce is Required and not in effect in CommGroup ml/pool",
						Description: "Setting dda.AllReduce of CommGroup ml/pool is Required; effective: " +
							"Partial, verified: NotConfirmed, reason: AboveThreshold."}}},
				{Name: "just now", At: 2 * time.Minute, Pending: 1,
					Series: []Series{setting("Required", "NotInEffect", "Unknown", "NotBuilt", "1x20")}},
				{Name: "preferred only", At: 6 * time.Minute,
					Series: []Series{setting("Preferred", "NotInEffect", "Unknown", "NotBuilt", "1x20")}},
				{Name: "in effect", At: 6 * time.Minute,
					Series: []Series{setting("Required", "Partial", "Confirmed", "AboveThreshold", "1x20")}},
			},
		},
		{
			Name: "CommGroupSettingRegressed", Severity: Warning, For: 5 * time.Minute,
			Expr: fmt.Sprintf("%s and %s %s", promql.Max(promql.Of(metrics.Setting, promql.Not("requested", "Disabled"),
				promql.Is("effective", "NotInEffect")), "setting", "reason"), promql.OnGroup("setting"),
				promql.Max("max_over_time("+promql.Of(metrics.Setting, promql.Not("requested", "Disabled"),
					promql.In("effective", "InEffect", "Partial"))+"[1d])", "setting")),
			Summary: "{{ $labels.setting }} was in effect in CommGroup " + groupName + " and is not any more",
			Description: "Setting {{ $labels.setting }} of CommGroup " + groupName +
				" was in effect within the last day and is not now: {{ $labels.reason }}.",
			Page: Page{
				Meaning: "A setting that was in effect within the last 24 hours is not in effect now, though it is " +
					"still asked for.",
				Impact: "Something that jobs rely on was lost: usually another library build or another " +
					"number of ranks.",
				Look: []string{explain, "`status.inventory` - library and ROCm of the members", results},
				Do: []string{"Compare the library's build with the one of the last good run " +
					"(`status.baseline.previous`).", "Pin the runtime image by digest."},
				Silence: "By `setting`. It ends by itself a day after the change.",
				Reasons: append([]string{"NotInEffect"}, toMend(settings)...),
			},
			Tests: []Test{
				{Name: "lost", At: 40 * time.Minute,
					Series: []Series{setting("Preferred", "Partial", "Confirmed", "AboveThreshold", "1x30 _x30"),
						setting("Preferred", "NotInEffect", "Unknown", "NotBuilt", "_x30 1x30")},
					Fires: []Fired{{Labels: pool.with(labels{"setting": "dda.AllReduce", "reason": "NotBuilt"}),
						Summary: "dda.AllReduce was in effect in CommGroup ml/pool and is not any more",
						Description: "Setting dda.AllReduce of CommGroup ml/pool was in effect within the last day " +
							"and is not now: NotBuilt."}}},
				{Name: "lost just now", At: 33 * time.Minute, Pending: 1,
					Series: []Series{setting("Preferred", "Partial", "Confirmed", "AboveThreshold", "1x30 _x30"),
						setting("Preferred", "NotInEffect", "Unknown", "NotBuilt", "_x30 1x30")}},
				{Name: "never in effect", At: 40 * time.Minute,
					Series: []Series{setting("Preferred", "NotInEffect", "Unknown", "NotBuilt", "1x60")}},
				{Name: "switched off", At: 40 * time.Minute,
					Series: []Series{setting("Preferred", "InEffect", "Confirmed", "Active", "1x30 _x30"),
						setting("Disabled", "NotInEffect", "Unknown", "Disabled", "_x30 1x30")}},
			},
		},
	}
}
