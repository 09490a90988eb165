package metrics

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reviewer is an API server that knows one token, whose owner may get the metrics while allowed.
type reviewer struct {
	client.Client
	mu      sync.Mutex
	allowed bool
	err     error
	asked   int
	hold    chan struct{} // where set, a review says that it came, and waits for it
	came    chan struct{}
	path    string
}

func (r *reviewer) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	if r.hold != nil {
		r.came <- struct{}{}
		select {
		case <-r.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := o.(type) {
	case *authenticationv1.TokenReview:
		r.asked++
		o.Status.Authenticated = o.Spec.Token == "good"
		o.Status.User = authenticationv1.UserInfo{Username: "scraper", Groups: []string{"g"},
			Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	case *authorizationv1.SubjectAccessReview:
		s := o.Spec
		r.path = s.NonResourceAttributes.Path
		o.Status.Allowed = r.allowed && s.User == "scraper" && s.Groups[0] == "g" && s.Extra["k"][0] == "v" &&
			s.NonResourceAttributes.Verb == "get"
	}
	return r.err
}

func TestAccess(t *testing.T) {
	for _, tc := range []struct {
		name, header string
		allowed      bool
		err          error
		want         int
	}{
		{"no header", "", true, nil, http.StatusUnauthorized},
		{"another scheme", "Basic good", true, nil, http.StatusUnauthorized},
		{"an empty token", "Bearer ", true, nil, http.StatusUnauthorized},
		{"no space", "Bearergood", true, nil, http.StatusUnauthorized},
		{"a token that nobody knows", "Bearer bad", true, nil, http.StatusUnauthorized},
		{"no right", "Bearer good", false, nil, http.StatusForbidden},
		{"the right", "Bearer good", true, nil, http.StatusOK},
		{"the scheme's case", "bearer good", true, nil, http.StatusOK},
		{"the API server does not answer", "Bearer good", true, errors.New("away"), http.StatusServiceUnavailable},
	} {
		api := &reviewer{allowed: tc.allowed, err: tc.err}
		a := newAccess(api, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
		if got := status(t, a, tc.header); got != tc.want {
			t.Errorf("%s: HTTP %d, want %d", tc.name, got, tc.want)
		}
		if tc.want == http.StatusOK && api.path != Path {
			t.Errorf("%s: asked for the right to %q", tc.name, api.path)
		}
	}
}

type recorded struct {
	http.ResponseWriter
	status int
	header http.Header
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(status int)      { r.status = status }
func (r *recorded) Write(b []byte) (int, error) { return len(b), nil }

func status(t *testing.T, a *access, header string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", header)
	w := &recorded{header: http.Header{}}
	a.guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})).ServeHTTP(w, r)
	return w.status
}

// TestAnswersHoldForATime: the API server is asked once in a while, and a right that was taken away ends.
func TestAnswersHoldForATime(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	api := &reviewer{allowed: true}
	a := newAccess(api, clk)
	step := func(after time.Duration, allowed bool, want, wantAsked int) {
		t.Helper()
		clk.SetTime(clk.Now().Add(after))
		api.allowed = allowed
		if got := status(t, a, "Bearer good"); got != want || api.asked != wantAsked {
			t.Errorf("at %s: HTTP %d after %d questions, want %d after %d",
				clk.Now().UTC().Format(time.TimeOnly), got, api.asked, want, wantAsked)
		}
	}
	step(0, true, http.StatusOK, 1)
	step(allowedFor-time.Second, false, http.StatusOK, 1)
	step(2*time.Second, false, http.StatusForbidden, 2)
	step(deniedFor-time.Second, true, http.StatusForbidden, 2)
	step(2*time.Second, true, http.StatusOK, 3)
}

// TestStrangersDoNotFlood: only so many questions are open at once, the others wait and are told to come again, and a
// known token is answered all the same, also where its answer has to be renewed.
func TestStrangersDoNotFlood(t *testing.T) {
	api := &reviewer{allowed: true}
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	a := newAccess(api, clk)
	if got := status(t, a, "Bearer good"); got != http.StatusOK {
		t.Fatalf("HTTP %d", got)
	}
	a.deadline = time.Hour
	api.hold, api.came = make(chan struct{}), make(chan struct{}, 2*maxReviews+1)
	var wg sync.WaitGroup
	for i := range maxReviews {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, _ = a.ask(context.Background(), "Bearer stranger"+string(rune('a'+i)), Path)
		}()
	}
	for range maxReviews { // each took its place and keeps it until the hold ends
		<-api.came
	}
	a.deadline = time.Millisecond
	if got := status(t, a, "Bearer one-more"); got != http.StatusTooManyRequests {
		t.Errorf("one more stranger: HTTP %d", got)
	}
	if got := status(t, a, "Bearer good"); got != http.StatusOK {
		t.Errorf("a known token among strangers: HTTP %d", got)
	}
	a.deadline = time.Hour
	clk.SetTime(clk.Now().Add(allowedFor + time.Second))
	renewed := make(chan answer, 1)
	go func() {
		got, _ := a.ask(context.Background(), "Bearer good", Path)
		renewed <- got
	}()
	<-api.came // it has a place though strangers have all of theirs
	waits := make(chan answer, 1)
	go func() {
		got, _ := a.ask(context.Background(), "Bearer good", "/other")
		waits <- got
	}()
	close(api.hold)
	wg.Wait()
	if got := <-renewed; got.status != http.StatusOK {
		t.Errorf("a known token whose answer has to be renewed among strangers: HTTP %d", got.status)
	}
	if got := <-waits; got.status != http.StatusOK {
		t.Errorf("a token that waits for a place: HTTP %d", got.status)
	}
	if got := status(t, a, "Bearer one-more"); got != http.StatusUnauthorized {
		t.Errorf("one more stranger later: HTTP %d", got)
	}
}

// However many tokens strangers try, whoever is let in is not asked about again.
func TestStrangersDoNotPushOutTheKnown(t *testing.T) {
	api := &reviewer{allowed: true}
	a := newAccess(api, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	for i := range maxAnswers + 2 {
		if got := status(t, a, "Bearer good"); got != http.StatusOK || api.asked != i+1 {
			t.Fatalf("after %d strangers: HTTP %d and %d questions", i, got, api.asked)
		}
		if got := status(t, a, fmt.Sprintf("Bearer junk%d", i)); got != http.StatusUnauthorized {
			t.Fatalf("a stranger: HTTP %d", got)
		}
	}
	// The same without the known one's being used in between.
	for i := range maxAnswers + 2 {
		_ = status(t, a, fmt.Sprintf("Bearer more%d", i))
	}
	asked := api.asked
	if got := status(t, a, "Bearer good"); got != http.StatusOK || api.asked != asked {
		t.Errorf("after many strangers: HTTP %d and %d more questions", got, api.asked-asked)
	}
}

// Whoever is not let in keeps no connection, and no address has more than its share of them.
func TestConnectionsAreBounded(t *testing.T) {
	address := serve(t, &reviewer{allowed: true}, "")
	if response, _ := get(t, http.MethodGet, "https://"+address+Path, ""); !response.Close {
		t.Error("the connection of one without a token stays open")
	}
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Bounded(inner)
	t.Cleanup(func() { _ = l.Close() })
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var first net.Conn
	for range maxOfPeer {
		_ = dial()
		c := <-accepted
		t.Cleanup(func() { _ = c.Close() })
		first = c
	}
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("one connection more was not closed")
	}
	for range 2 { // the second close counts no more
		_ = first.Close()
	}
	_ = dial()
	c := <-accepted
	_ = c.Close()
	if b := l.(*bounded); b.all != maxOfPeer-1 || b.open["127.0.0.1"] != maxOfPeer-1 {
		t.Errorf("%d connections are counted, %v by address", b.all, b.open)
	}
}

// The bound over all addresses holds too.
func TestConnectionsOfAllAreBounded(t *testing.T) {
	b := Bounded(nil).(*bounded)
	taken := 0
	for i := range 2 * maxConnections {
		if b.take(fmt.Sprintf("10.0.0.%d", i)) {
			taken++
		}
	}
	if taken != maxConnections || b.take("10.0.0.0") {
		t.Errorf("%d connections were taken, want %d", taken, maxConnections)
	}
	b.give("10.0.0.0")
	if !b.take("10.1.0.0") {
		t.Error("one that ended makes no place for the next")
	}
}

// serve starts a server of a recorder that scanned, and returns its address.
func serve(t *testing.T, api client.Client, certDir string) string {
	t.Helper()
	r, _ := newRecorder()
	if _, err := r.Scan(context.Background()); err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(r, api, "n1", certDir)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server's end: %v", err)
		}
	})
	return listener.Addr().String()
}

// get asks over HTTPS without looking at who signed the certificate.
func get(t *testing.T, method, url, token string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // the test's own server
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestServer(t *testing.T) {
	address := serve(t, &reviewer{allowed: true}, "")
	response, body := get(t, http.MethodGet, "https://"+address+Path, "good")
	if response.StatusCode != http.StatusOK || !strings.Contains(body, `commgroup_agent_gpus{node="n1"} 3`) {
		t.Errorf("HTTP %d:\n%s", response.StatusCode, body)
	}
	if response.ProtoMajor != 1 || response.TLS.Version < tls.VersionTLS12 {
		t.Errorf("HTTP/%d over TLS %x: want HTTP/1 over TLS 1.2 or later", response.ProtoMajor, response.TLS.Version)
	}
	if strings.Contains(body, "\ngo_") {
		t.Error("series that are not in the contract")
	}
	for _, tc := range []struct {
		method, path, token string
		want                int
	}{{http.MethodGet, Path, "", http.StatusUnauthorized}, {http.MethodGet, Path, "bad", http.StatusUnauthorized},
		{http.MethodGet, "/", "good", http.StatusNotFound},
		{http.MethodGet, "/debug/pprof/", "good", http.StatusNotFound},
		{http.MethodPost, Path, "good", http.StatusMethodNotAllowed}} {
		if response, body := get(t, tc.method, "https://"+address+tc.path,
			tc.token); response.StatusCode != tc.want || strings.Contains(body, "commgroup_") {
			t.Errorf("%s %s with token %q: HTTP %d %s, want %d",
				tc.method, tc.path, tc.token, response.StatusCode, body, tc.want)
		}
	}
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11} //nolint:gosec // the test's own server
	if c, err := (&tls.Dialer{Config: old}).DialContext(context.Background(), "tcp", address); err == nil {
		_ = c.Close()
		t.Error("TLS 1.1 was taken")
	}
}

// TestCertificateFolder: the certificate of the folder is the one that is shown; a folder without one is told.
func TestCertificateFolder(t *testing.T) {
	folder := t.TempDir()
	r, _ := newRecorder()
	if _, err := NewServer(r, &reviewer{}, "n1", folder); err == nil ||
		!strings.Contains(err.Error(), "put tls.crt and tls.key into") {
		t.Errorf("an empty folder: %v", err)
	}
	chain, key, err := cert.GenerateSelfSignedCertKey("given.example", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": chain, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	response, _ := get(t, http.MethodGet, "https://"+serve(t, &reviewer{allowed: true}, folder)+Path, "good")
	if name := response.TLS.PeerCertificates[0].Subject.CommonName; !strings.HasPrefix(name, "given.example@") {
		t.Errorf("the certificate is of %q", name)
	}
}

func FuzzBearerToken(f *testing.F) {
	for _, seed := range []string{"", "Bearer x", "bearer  x ", "Bearer", " Bearer a b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		token := bearerToken(header)
		if token != strings.TrimSpace(token) || token != "" && !strings.Contains(header, token) {
			t.Errorf("%q gives %q", header, token)
		}
	})
}
