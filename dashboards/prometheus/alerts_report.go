package prometheus

import (
	"fmt"
	"time"

	"rcclx.io/commgroup-operator/dashboards/promql"
	"rcclx.io/commgroup-operator/internal/metrics"
)

func reportAlerts() []Alert {
	return []Alert{
		{
			Name: "CommGroupReportsStale", Severity: Warning, For: 5 * time.Minute,
			Expr: fmt.Sprintf("time() - %s > 1.5 * %s",
				promql.Max(promql.Of(metrics.OldestReport)), promql.Max(promql.Of(metrics.ReportValid))),
			Summary: "Reports of CommGroup " + groupName + " are stale",
			Description: "The oldest report of a member of CommGroup " + groupName +
				" is {{ $value | humanizeDuration }} old, more than one and a half times as long as a report holds.",
			Page: Page{
				Meaning: "A member's monitor has not reported for one and a half times as long as its report holds " +
					"(`monitor.reportValidSeconds` of the chart). This looks at the time alone and not at what the " +
					"manager makes of it, so that it fires also where the manager no longer works.",
				Impact: "What is shown of the node may be wrong by now: missing data is no pass.",
				Look: []string{reported, monitors,
					"Alerts CommGroupManagerDown, CommGroupAgentDown and CommGroupAgentReportFailing"},
				Do: []string{"Mend the monitor or its node; a report comes within seconds of its start.",
					"Where the node is gone for good, take it out of the group."},
				Silence: "By group, while nodes are in maintenance.",
				Reasons: []string{"AgentNotReporting"},
			},
			Tests: []Test{
				{Name: "silent for 25 minutes", At: 25 * time.Minute,
					Series: []Series{of(metrics.OldestReport, nil, "0x60"), of(metrics.ReportValid, nil, "600x60")},
					Fires: []Fired{{Labels: pool, Summary: "Reports of CommGroup ml/pool are stale",
						Description: "The oldest report of a member of CommGroup ml/pool is 25m 0s old, more than " +
							"one and a half times as long as a report holds."}}},
				{Name: "silent for 17 minutes", At: 17 * time.Minute, Pending: 1,
					Series: []Series{of(metrics.OldestReport, nil, "0x60"), of(metrics.ReportValid, nil, "600x60")}},
				{Name: "reports hold for an hour", At: 25 * time.Minute,
					Series: []Series{of(metrics.OldestReport, nil, "0x60"), of(metrics.ReportValid, nil, "3600x60")}},
				{Name: "reports go on", At: 25 * time.Minute,
					Series: []Series{of(metrics.OldestReport, nil, "0+60x60"), of(metrics.ReportValid, nil, "600x60")}},
			},
		},
		{
			Name: "CommGroupMembersNotReporting", Severity: Warning, For: 15 * time.Minute,
			Expr: fmt.Sprintf("%s - %s > 0", promql.Max(promql.Of(metrics.Members, promql.Is("state", "selected"))),
				promql.Max(promql.Of(metrics.Members, promql.Is("state", "reporting")))),
			Summary: "{{ $value }} members of CommGroup " + groupName + " do not report",
			Description: "{{ $value }} members of CommGroup " + groupName +
				" have had no report that holds for 15 minutes.",
			Page: Page{
				Meaning: "Members were selected whose monitor never reported, or whose report no longer holds.",
				Impact:  "Nothing is known of these nodes; the group is not Ready.",
				Look:    []string{reported, monitors},
				Do: []string{"`kubectl describe pod` of the monitor: image, pull secret, taint, Pod Security level " +
					"of the namespace. Where the node has none: `monitor.nodeSelector`, `monitor.affinity` and " +
					"`monitor.tolerations` of the chart.", "Its log says why a report was not taken."},
				Silence: "By group, while nodes are added.",
				Reasons: []string{"AgentNotReporting", "WaitingForAgents"},
			},
			Tests: []Test{
				{Name: "two are silent", At: 16 * time.Minute,
					Series: []Series{count("selected", "16x30"), count("reporting", "14x30")},
					Fires: []Fired{{Labels: pool, Summary: "2 members of CommGroup ml/pool do not report",
						Description: "2 members of CommGroup ml/pool have had no report that holds for 15 minutes."}}},
				{Name: "for ten minutes", At: 10 * time.Minute, Pending: 1,
					Series: []Series{count("selected", "16x30"), count("reporting", "14x30")}},
				{Name: "all report", At: 16 * time.Minute,
					Series: []Series{count("selected", "16x30"), count("reporting", "16x30")}},
			},
		},
	}
}

func managerAlerts() []Alert {
	leads := of(metrics.ManagerInfo, labels{"version": "v1"}, "1x60")
	errs := promql.Of(promql.ReconcileErrors, promql.Is("controller", promql.Controller))
	return []Alert{
		{
			Name: "CommGroupManagerDown", Severity: Critical, For: 10 * time.Minute,
			Expr:    "absent(" + promql.Of(metrics.ManagerInfo) + ")",
			Summary: "No CommGroup manager leads, or it is not scraped",
			Description: "Prometheus has seen no metrics of a leading CommGroup manager for 10 minutes: it is down, " +
				"none leads, or the scrape is refused.",
			Page: Page{
				Meaning: "`" + metrics.ManagerInfo.Name + "`, which only the leading manager has, is absent.",
				Impact:  "No run starts, no verdict is made, other alerts of groups cannot fire. Jobs are not touched.",
				Look: []string{"`kubectl -n commgroup-system get " +
					"deploy,pods -l app.kubernetes.io/name=commgroup-manager`",
					"`kubectl -n commgroup-system logs deploy/commgroup-manager`",
					"`kubectl -n commgroup-system get lease " + promql.Lease + " -o yaml` - who leads",
					"Prometheus, Status, Targets: is the manager's target up? 401 or 403 means that Prometheus' " +
						"account lacks the ClusterRole commgroup-metrics-reader"},
				Do: []string{"Mend what the pod's events or log say.",
					"[metrics](../../metrics.md) has how to scrape it."},
				Silence: "During an upgrade that is planned, not longer than an hour.",
			},
			Tests: []Test{
				{Name: "none leads", At: 11 * time.Minute,
					Series: []Series{of(promql.Leader, labels{"name": promql.Lease}, "0x60")},
					Fires: []Fired{{Summary: "No CommGroup manager leads, or it is not scraped",
						Description: "Prometheus has seen no metrics of a leading CommGroup manager for 10 minutes: " +
							"it is down, none leads, or the scrape is refused."}}},
				{Name: "for five minutes", At: 5 * time.Minute, Pending: 1,
					Series: []Series{of(promql.Leader, labels{"name": promql.Lease}, "0x60")}},
				{Name: "one leads", At: 11 * time.Minute, Series: []Series{leads}},
			},
		},
		{
			Name: "CommGroupReconcileErrors", Severity: Warning, For: 30 * time.Minute,
			Expr:    "sum(rate(" + errs + "[15m])) > 0",
			Summary: "The CommGroup manager meets errors again and again",
			Description: "Reconciles of CommGroups have ended with errors for 30 minutes, {{ $value | printf " +
				"\"%.2f\" }} a second.",
			Page: Page{
				Meaning: "Reconciles fail repeatedly. They are tried again with growing pauses.",
				Impact:  "Status of some groups may lag.",
				Look: []string{"`kubectl -n commgroup-system logs deploy/commgroup-manager | grep -i error` - the " +
					"group is a key of each line"},
				Do: []string{"A forbidden call: the chart's roles are older than the manager, upgrade the release.",
					"A conflict or time-out: look at the API server's load."},
				Silence: "While the API server is in maintenance.",
				Reasons: []string{"ListFailed"},
			},
			Tests: []Test{
				{Name: "errors for 50 minutes", At: 50 * time.Minute,
					Series: []Series{of(promql.ReconcileErrors, labels{"controller": promql.Controller}, "0+6x90")},
					Fires: []Fired{{Summary: "The CommGroup manager meets errors again and again",
						Description: "Reconciles of CommGroups have ended with errors for 30 minutes, " +
							"0.10 a second."}}},
				{Name: "errors for ten minutes", At: 10 * time.Minute, Pending: 1,
					Series: []Series{of(promql.ReconcileErrors, labels{"controller": promql.Controller}, "0+6x90")}},
				{Name: "no new errors", At: 50 * time.Minute,
					Series: []Series{of(promql.ReconcileErrors, labels{"controller": promql.Controller}, "7x90")}},
			},
		},
	}
}
