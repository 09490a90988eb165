package metrics

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// allowedFor and deniedFor are how long an answer of the API server holds: a right that was taken away ends within a minute.
	allowedFor = time.Minute
	deniedFor  = 10 * time.Second
	// maxAnswers bounds the answers that are kept.
	maxAnswers = 256
	// maxReviews bounds the questions to the API server at one time: strangers shall not make the agents flood it.
	maxReviews     = 4
	reviewDeadline = 10 * time.Second
)

// access lets those in whom the API server knows by their token and gives the right to get the path.
type access struct {
	api     client.Client
	answers *cache.LRUExpireCache
	reviews chan struct{}
}

func newAccess(api client.Client, clk clock.PassiveClock) *access {
	return &access{api: api, answers: cache.NewLRUExpireCacheWithClock(maxAnswers, clk), reviews: make(chan struct{}, maxReviews)}
}

// question is who asks for what. The token itself is not kept.
type question struct {
	token [sha256.Size]byte
	path  string
}

// answer is the HTTP status that a question gets, with the words for it.
type answer struct {
	status  int
	message string
}

func (a answer) holds() time.Duration {
	if a.status == http.StatusOK {
		return allowedFor
	}
	return deniedFor
}

var errBusy = errors.New("too many requests whose token is not known yet; ask again")

// guard answers for the next handler where access is not given.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := a.ask(r.Context(), r.Header.Get("Authorization"), r.URL.Path)
		switch {
		case errors.Is(err, errBusy):
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		case err != nil:
			http.Error(w, "The API server was not asked for the right to "+r.URL.Path+": "+err.Error(), http.StatusServiceUnavailable)
		case got.status != http.StatusOK:
			if got.status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			http.Error(w, got.message, got.status)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// bearerToken takes the token out of the header's value (RFC 6750, 2.1); the scheme's case does not matter.
func bearerToken(header string) string {
	scheme, token, found := strings.Cut(strings.TrimSpace(header), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func (a *access) ask(ctx context.Context, header, path string) (answer, error) {
	token := bearerToken(header)
	if token == "" {
		return answer{http.StatusUnauthorized, "No bearer token: send the token of an account that may get " + path + "."}, nil
	}
	key := question{sha256.Sum256([]byte(token)), path}
	if known, ok := a.answers.Get(key); ok {
		return known.(answer), nil
	}
	select {
	case a.reviews <- struct{}{}:
		defer func() { <-a.reviews }()
	default:
		return answer{}, errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, reviewDeadline)
	defer cancel()
	got, err := a.review(ctx, token, path)
	if err != nil {
		return answer{}, err // no answer is none: it is not kept
	}
	a.answers.Add(key, got, got.holds())
	return got, nil
}

func (a *access) review(ctx context.Context, token, path string) (answer, error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := a.api.Create(ctx, who); err != nil {
		return answer{}, fmt.Errorf("tokenreview: %w", err)
	}
	if !who.Status.Authenticated {
		return answer{http.StatusUnauthorized, "The API server does not know this token, or it has expired."}, nil
	}
	user := who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	may := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}
	if err := a.api.Create(ctx, may); err != nil {
		return answer{}, fmt.Errorf("subjectaccessreview: %w", err)
	}
	if !may.Status.Allowed {
		return answer{http.StatusForbidden, fmt.Sprintf("%s may not get %s: bind it to the ClusterRole commgroup-metrics-reader.", user.Username, path)}, nil
	}
	return answer{status: http.StatusOK}, nil
}
