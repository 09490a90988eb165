package metrics

import (
	"context"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"rcclx.io/commgroup-operator/internal/testenv"
)

// TestAgainstAPIServer lets a real API server judge real tokens, asked by an account that may ask for nothing else.
func TestAgainstAPIServer(t *testing.T) {
	_, config := testenv.Start(t)
	ctx := context.Background()
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	role := func(name, account string, rules ...rbacv1.PolicyRule) {
		t.Helper()
		_, err := admin.RbacV1().ClusterRoles().Create(ctx,
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
		must(err)
		_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx,
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}}},
			metav1.CreateOptions{})
		must(err)
	}
	token := func(account string) string {
		t.Helper()
		_, err := admin.CoreV1().ServiceAccounts("default").Create(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		must(err)
		got, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, account,
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		must(err)
		return got.Status.Token
	}
	monitor, scraper, stranger := token("monitor"), token("scraper"), token("stranger")
	role("commgroup-agent-metrics", "monitor",
		rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"},
			Verbs: []string{"create"}}, rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"},
			Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}})
	role("commgroup-metrics-reader", "scraper",
		rbacv1.PolicyRule{NonResourceURLs: []string{Path}, Verbs: []string{"get"}})

	as := rest.AnonymousClientConfig(config)
	as.BearerToken = monitor
	reviews, err := ReviewClient(as)
	must(err)
	url := "https://" + serve(t, reviews, "") + Path
	for _, tc := range []struct {
		who, token string
		want       int
	}{
		{"nobody", "", http.StatusUnauthorized},
		{"a forged token", scraper[:len(scraper)-6] + "AAAAAA", http.StatusUnauthorized},
		{"an account without the right", stranger, http.StatusForbidden},
		{"the monitor's own account", monitor, http.StatusForbidden},
		{"the scraper", scraper, http.StatusOK},
	} {
		response, body := get(t, http.MethodGet, url, tc.token)
		if response.StatusCode != tc.want ||
			strings.Contains(body, "commgroup_agent_gpus{") != (tc.want == http.StatusOK) {
			t.Errorf("%s: HTTP %d, want %d:\n%s", tc.who, response.StatusCode, tc.want, body)
		}
	}
	// A monitor that may not ask gives nobody anything, and says why.
	mute := rest.AnonymousClientConfig(config)
	mute.BearerToken = stranger
	reviews, err = ReviewClient(mute)
	must(err)
	response, body := get(t, http.MethodGet, "https://"+serve(t, reviews, "")+Path, scraper)
	if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "tokenreviews") {
		t.Errorf("a monitor without the right to ask: HTTP %d:\n%s", response.StatusCode, body)
	}
}
