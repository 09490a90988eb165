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
	// allowedFor and deniedFor are how long an answer of the API server holds: a right that was taken away ends within
	// a minute.
	allowedFor = time.Minute
	deniedFor  = 10 * time.Second
	// knownFor is how long a token that was let in has its own places for the next question: longer than any interval
	// of scrapes.
	knownFor = time.Hour
	// maxAnswers bounds the answers that are kept, those that let in and those that refuse each.
	maxAnswers = 256
	// maxReviews bounds the questions to the API server at one time: strangers shall not make the agents flood it.
	maxReviews = 4
	// maxRenewals bounds those for tokens that were let in before: strangers do not keep them waiting.
	maxRenewals = 2
	// reviewDeadline is for a place and the answer.
	reviewDeadline = 8 * time.Second
)

// access lets those in whom the API server knows by their token and gives the right to get the path.
type access struct {
	api client.Client
	// Refusals are kept apart, so that strangers with ever new tokens do not push out those who are let in.
	allowed, refused, known *cache.LRUExpireCache
	reviews, renewals       chan struct{}
	deadline                time.Duration
}

func newAccess(api client.Client, clk clock.PassiveClock) *access {
	kept := func() *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(maxAnswers, clk) }
	return &access{api: api, allowed: kept(), refused: kept(), known: kept(), reviews: make(chan struct{}, maxReviews),
		renewals: make(chan struct{}, maxRenewals), deadline: reviewDeadline}
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

var errBusy = errors.New("too many requests whose token is not known yet; ask again")

// guard answers for the next handler where access is not given.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := a.ask(r.Context(), r.Header.Get("Authorization"), r.URL.Path)
		if err != nil || got.status != http.StatusOK {
			w.Header().Set("Connection", "close") // whoever is not let in keeps no connection
		}
		switch {
		case errors.Is(err, errBusy):
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		case err != nil:
			http.Error(w, "The API server was not asked for the right to "+r.URL.Path+": "+err.Error(),
				http.StatusServiceUnavailable)
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
		return answer{http.StatusUnauthorized,
			"No bearer token: send the token of an account that may get " + path + "."}, nil
	}
	key := question{sha256.Sum256([]byte(token)), path}
	for _, answers := range []*cache.LRUExpireCache{a.allowed, a.refused} {
		if known, ok := answers.Get(key); ok {
			return known.(answer), nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, a.deadline)
	defer cancel()
	places := a.reviews
	if _, ok := a.known.Get(key); ok {
		places = a.renewals
	}
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-ctx.Done():
		return answer{}, errBusy
	}
	got, err := a.review(ctx, token, path)
	if err != nil {
		return answer{}, err // no answer is none: it is not kept
	}
	if got.status == http.StatusOK {
		a.allowed.Add(key, got, allowedFor)
		a.known.Add(key, struct{}{}, knownFor)
	} else {
		a.refused.Add(key, got, deniedFor)
		a.known.Remove(key)
	}
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
		return answer{http.StatusForbidden, fmt.Sprintf("%s may not get %s: bind it to the ClusterRole "+
			"commgroup-metrics-reader.", user.Username, path)}, nil
	}
	return answer{status: http.StatusOK}, nil
}
