package promproof

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// Names that the chart gives.
const (
	managerSelector = "app.kubernetes.io/name=commgroup-manager"
	monitorSelector = "app.kubernetes.io/name=commgroup-monitor"
	readerRole      = "commgroup-metrics-reader"
	metricsPort     = "metrics"
	scraper         = "commgroup-scraper-test"
)

const callDeadline = 30 * time.Second

// Targets are the operator's managers and monitors in a cluster, by their pods' addresses, with the token of a new
// account that may read metrics and nothing else.
func Targets(t testing.TB, kube kubernetes.Interface, namespace string) []Target {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callDeadline)
	defer cancel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(scraperToken(ctx, t, kube, namespace)), 0o600); err != nil {
		t.Fatal(err)
	}
	out := []Target{}
	for job, selector := range map[string]string{"commgroup-manager": managerSelector,
		"commgroup-monitor": monitorSelector} {
		pods, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
		target := Target{Job: job, Scheme: "https", TokenFile: token}
		for i := range pods.Items {
			if address := metricsAddress(&pods.Items[i]); address != "" {
				target.Addresses = append(target.Addresses, address)
			}
		}
		if len(target.Addresses) == 0 {
			t.Fatalf("no running pod with the label %s has a port %q: is the operator installed?",
				selector, metricsPort)
		}
		out = append(out, target)
	}
	return out
}

// Count is the number of addresses of the targets.
func Count(targets []Target) int {
	n := 0
	for _, target := range targets {
		n += len(target.Addresses)
	}
	return n
}

func metricsAddress(pod *corev1.Pod) string {
	if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" || pod.DeletionTimestamp != nil {
		return ""
	}
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			if port.Name == metricsPort {
				return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port.ContainerPort)))
			}
		}
	}
	return ""
}

// scraperToken makes the account, and takes it away when the test ends.
func scraperToken(ctx context.Context, t testing.TB, kube kubernetes.Interface, namespace string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: scraper, Namespace: namespace}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: scraper},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: readerRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: scraper, Namespace: namespace}},
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
		defer cancel()
		for what, err := range map[string]error{
			"binding": kube.RbacV1().ClusterRoleBindings().Delete(ctx, scraper, metav1.DeleteOptions{}),
			"account": kube.CoreV1().ServiceAccounts(namespace).Delete(ctx, scraper, metav1.DeleteOptions{}),
		} {
			if err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("removing the scraper's %s: %v", what, err)
			}
		}
	})
	if _, err := kube.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if _, err := kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	answer, err := kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, scraper, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(fmt.Errorf("a token for the account %s/%s: %w", namespace, scraper, err))
	}
	return answer.Status.Token
}
