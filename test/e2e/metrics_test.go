//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcclx.io/commgroup-operator/api/v1alpha1"
)

// scrapePod asks a pod for its metrics at the port of that name, by the pod's own address.
func scrapePod(ctx context.Context, pod *corev1.Pod, token string) (status int, body string, err error) {
	port := int32(0)
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == "metrics" {
				port = p.ContainerPort
			}
		}
	}
	if port == 0 {
		return 0, "", fmt.Errorf("pod %s has no port metrics", pod.Name)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"https://"+net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(port))+"/metrics", nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the pod signs its certificate itself
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// testMetrics scrapes each manager and monitor with tokens of real accounts: one with the right, one without, and none.
func testMetrics(t *testing.T, e *env) {
	e.installOperator(t)
	e.apply(t, idleGroup("default", "measured"))
	key := client.ObjectKey{Namespace: "default", Name: "measured"}
	e.wantCondition(t, key, v1alpha1.ConditionAgentsReporting)

	token := func(account string) string {
		t.Helper()
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: account}}
		request := &authenticationv1.TokenRequest{}
		if err := errors.Join(e.Client.Create(t.Context(), sa),
			e.Client.SubResource("token").Create(t.Context(), sa, request)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Client.Delete(context.Background(), sa) })
		return request.Status.Token
	}
	scraper, stranger := token("scraper"), token("stranger")
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "e2e-scraper"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "commgroup-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "scraper"}}}
	if err := e.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Client.Delete(context.Background(), binding) })

	for _, kind := range []struct {
		app, series string
		pods, speak int // how many there are, and how many have the series
	}{
		{"commgroup-manager",
			`commgroup_members{group="measured",group_namespace="default",state="reporting"} 3`, 2, 1},
		{"commgroup-monitor", `commgroup_agent_gpus{node="`, nodeCount, nodeCount},
	} {
		eventually(t, shortDeadline, "metrics of "+kind.app, func(ctx context.Context) error {
			var pods corev1.PodList
			if err := e.Client.List(ctx, &pods, client.InNamespace(operatorNamespace),
				client.MatchingLabels{"app.kubernetes.io/name": kind.app}); err != nil {
				return err
			}
			if len(pods.Items) != kind.pods {
				return fmt.Errorf("%d pods of %s, want %d", len(pods.Items), kind.app, kind.pods)
			}
			speak := 0
			for i := range pods.Items {
				pod := &pods.Items[i]
				for _, tc := range []struct {
					token string
					want  int
				}{{"", http.StatusUnauthorized}, {stranger, http.StatusForbidden}, {scraper, http.StatusOK}} {
					status, body, err := scrapePod(ctx, pod, tc.token)
					if err != nil {
						return err
					}
					if status != tc.want {
						return fmt.Errorf("%s answers %d, want %d: %.200s", pod.Name, status, tc.want, body)
					}
					if strings.Contains(body, kind.series) {
						speak++
					}
				}
			}
			if speak != kind.speak {
				return fmt.Errorf("%d pods of %s have %s, want %d", speak, kind.app, kind.series, kind.speak)
			}
			return nil
		})
	}
	e.checkDelete(t, key)
}
