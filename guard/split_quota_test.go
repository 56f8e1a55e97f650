package guard

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// splitRig is a rig whose provider is Anthropic's with quotas, smaller than the configured ones.
type splitRig struct {
	*rig
	quota *quota.Quota
}

func newSplitRig(t *testing.T, limits fakeprovider.Quota) *splitRig {
	t.Helper()
	r := newRig(t, roomy()...)
	_ = r.fake.Close() // the rig closes the one that replaces it
	fake := fakeprovider.New(fakeprovider.Options{Key: "sk-own", KeepBodies: true, Quota: limits})
	if err := fake.Start(); err != nil {
		t.Fatal(err)
	}
	r.fake = fake
	r.moveToClaude(providers.Pool{ID: "claude", Split: true})
	q := quota.New(redistest.DB(r.redis.Client()), quota.Options{Lease: time.Minute})
	q.Configure([]quota.Pool{{ID: "claude", Split: true, TPM: 1_000_000, OTPM: 1_000_000, Burst: 1000}})
	r.guard.Grants.quota = q
	return &splitRig{r, q}
}

// call makes a whole call with quota. The error is of the quota or of the provider.
func (r *splitRig) call(body string) (*Call, *httptest.ResponseRecorder, error) {
	r.t.Helper()
	p, err := r.messages(body)
	if err != nil {
		r.t.Fatal(err)
	}
	c, w, granted := r.begin(p), httptest.NewRecorder(), &liveQuota{guard: r.guard}
	defer r.settle()
	defer c.End(r.t.Context())
	if err := granted.Take(r.t.Context(), c); err != nil {
		return c, w, err
	}
	err = c.Forward(r.t.Context(), w, Forwarding{Header: claudeBetas, Permit: granted.Permit})
	granted.Give(r.t.Context(), c)
	return c, w, err
}

// booked returns the tokens of input and of output that are booked in Redis, and the learned limits.
func (r *splitRig) booked() string {
	r.t.Helper()
	list := r.redis.Client().HMGet(r.t.Context(), quota.Key("claude", "quota"), "_", "out", "rn", "tn", "on").Val()
	output, _, _ := strings.Cut(list[1].(string), ",")
	return fmt.Sprint(strings.Split(list[0].(string), ",")[9], " ", output, " of ", list[2:])
}

// TestClaudeQuotas: of a conversation whose beginning is cached, input is booked without what was read from the
// cache, and output as it was produced, whatever max_tokens says. The limits are the provider's, so that llmguard
// does not send what would exceed them.
func TestClaudeQuotas(t *testing.T) {
	r := newSplitRig(t, fakeprovider.Quota{RPM: 50, TPM: 5000, OTPM: 8150})
	body := func(output int) string {
		return fmt.Sprintf(`{"model":"claude-sonnet-5","max_tokens":8000,"messages":[{"role":"user","content":"hi [fake: output=%d]"}],`+
			`"system":[{"type":"text","text":%q,"cache_control":{"type":"ephemeral"}}]}`, output, strings.Repeat("one two three four ", 300))
	}
	var input, output int64
	for i := range 3 {
		c, w, err := r.call(body(40 + i))
		if err != nil || w.Code != http.StatusOK {
			t.Fatalf("call %d: %d %s, %v", i, w.Code, w.Body, err)
		}
		if c.Plan.Quota != c.Plan.Input {
			t.Errorf("call %d takes %d tokens, want its input, %d", i, c.Plan.Quota, c.Plan.Input)
		}
		u := r.fake.Log()[i].Usage
		if i > 0 && u.Cached < 1000 {
			t.Fatalf("call %d read %d tokens from the cache", i, u.Cached)
		}
		input, output = input+u.Prompt-u.Cached, output+u.Completion
		if got, want := r.booked(), fmt.Sprintf("%d %d of [50 5000 8150]", input, output); got != want {
			t.Errorf("after call %d: booked %s, want %s", i, got, want)
		}
	}
	if _, _, err := r.call(body(8000)); err != nil {
		t.Fatal(err)
	}
	var busy *quota.BusyError
	if _, _, err := r.call(body(8000)); !errors.As(err, &busy) || busy.Reason != "otpm" || busy.Never {
		t.Errorf("beyond the output of a minute: %v, want to wait for otpm", err)
	}
	if n := r.fake.Totals().Outcomes[fakeprovider.Limited]; n != 0 || len(r.fake.Log()) != 4 {
		t.Errorf("the provider refused %d of %d", n, len(r.fake.Log()))
	}
}

// TestClaudeRefusals: a 529 pauses briefly and changes no limit; a used-up month or budget pauses for long, is
// relayed with the advice not to retry, and later calls are refused with the time that they would have to wait.
func TestClaudeRefusals(t *testing.T) {
	body := `{"model":"claude-sonnet-5","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`
	now := time.Now().UTC()
	month := time.Until(time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC))
	for name, tc := range map[string]struct {
		answer fakeprovider.Behaviour
		want   time.Duration
	}{
		"rate":     {fakeprovider.Behaviour{Status: 429, RetryAfter: "7"}, 7 * time.Second},
		"month":    {fakeprovider.Behaviour{Status: 429, Code: "enforced_spend_limit_reached"}, month},
		"overload": {fakeprovider.Behaviour{Status: 529}, time.Second},
		"budget":   {fakeprovider.Behaviour{Status: 400, Message: "You have reached your specified API usage limits. You will regain access on 2027-01-01."}, time.Hour},
		"credit":   {fakeprovider.Behaviour{Status: 400, Message: "Your credit balance is too low to access the Anthropic API."}, time.Hour},
		"invalid":  {fakeprovider.Behaviour{Status: 400}, 0},
		"size":     {fakeprovider.Behaviour{Status: 413, Body: "html"}, 0},
	} {
		want := tc.want
		r := newSplitRig(t, fakeprovider.Quota{RPM: 50, TPM: 5000, OTPM: 9000})
		if _, _, err := r.call(body); err != nil {
			t.Fatal(err)
		}
		before := r.booked()
		r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return tc.answer })
		_, w, err := r.call(body)
		r.fake.Script(nil)
		spent := want >= time.Hour
		if waits := errors.As(err, new(*BusyError)); waits == (spent || want == 0) {
			t.Errorf("%s: %v", name, err)
		}
		if advice := w.Header().Get("X-Should-Retry"); (advice == "false") != spent || spent && w.Code != 400 && w.Code != 429 {
			t.Errorf("%s: relayed as %d, retry: %q", name, w.Code, advice)
		}
		if after := r.booked(); after != before {
			t.Errorf("%s: booked %s, before %s", name, after, before)
		}
		_, _, err = r.call(body)
		busy, paused := errors.AsType[*quota.BusyError](err)
		switch {
		case want == 0 && err != nil, want > 0 && (!paused || busy.Reason != "blocked"):
			t.Errorf("%s: then %v, want %s", name, err, want)
		case paused && (busy.Wait > want+time.Second || busy.Wait < want-time.Minute):
			t.Errorf("%s: paused for %s, want %s", name, busy.Wait, want)
		}
	}
	if got := wire.SpentMonth(http.StatusTooManyRequests, []byte(`{"error":{"type":"rate_limit_error","message":"m"}}`)); got {
		t.Error("every 429 is a used-up month")
	}
}
