package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
	"rcclx.io/commgroup-operator/internal/report"
)

const (
	// managerSilentAfter is how old the leading manager's lease may be: it is renewed every few seconds, and a
	// hand-over and clocks that differ take some, too.
	managerSilentAfter = 90 * time.Second
	// leaseTimeout bounds the look at it, which no command is to fail for.
	leaseTimeout = 5 * time.Second
)

// managerSilence says that no manager leads any more, and since when; empty where one does, or where it cannot be told:
// the managers' lease may not be read, or there is none yet.
func managerSilence(ctx context.Context, c client.Client, now clock.PassiveClock) string {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	var leases coordinationv1.LeaseList
	if err := c.List(ctx, &leases, client.MatchingFields{"metadata.name": v1alpha1.ManagerLease}); err != nil {
		return ""
	}
	var newest *coordinationv1.Lease
	for i := range leases.Items {
		l := &leases.Items[i]
		if l.Spec.RenewTime != nil && (newest == nil || l.Spec.RenewTime.After(newest.Spec.RenewTime.Time)) {
			newest = l
		}
	}
	if newest == nil {
		return ""
	}
	silent := now.Since(newest.Spec.RenewTime.Time)
	if silent < managerSilentAfter {
		return ""
	}
	return fmt.Sprintf("no manager has been heard of for %s (lease %s/%s), so nothing here is kept up to date and no "+
		"run starts or ends: %s", silent.Round(time.Second), newest.Namespace, newest.Name, report.FindManager)
}
