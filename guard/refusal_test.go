package guard

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

func money(id string, amount int64) budget.Limit {
	return budget.Limit{ID: id, Subject: budget.User, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.ExactWindow, Amount: amount, Window: time.Hour}}
}

func tokens(id string, amount int64) budget.Limit {
	l := money(id, amount)
	l.Metric = budget.Tokens
	return l
}

// refused asserts that a body is refused.
func (r *rig) refused(body string) *Refusal {
	r.t.Helper()
	c, err := r.guard.admission.begin(r.t.Context(), r.plan(body), &Attempt{ID: wire.NewCallID(), Number: 1})
	var e *Refusal
	if !errors.As(err, &e) {
		if err == nil {
			c.End(r.t.Context())
		}
		r.t.Fatalf("%s was not refused: %v", body, err)
	}
	return e
}

var advised = regexp.MustCompile(`of (\d+)\.$`)

// TestAdvice checks that the advised output limit fits, and one more does not.
func TestAdvice(t *testing.T) {
	f := func(name string, limits []budget.Limit, spent, extra, limit string) {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, limits...)
			if spent != "" {
				r.begin(r.plan(prompt("gpt-4o", "hi", spent)))
			}
			e := r.refused(prompt("gpt-4o", "hi", extra+limit+`:10000`))
			m := advised.FindStringSubmatch(e.Advice)
			if m == nil {
				t.Fatalf("no advice: %q of %v", e.Advice, e.Binding)
			}
			n, _ := strconv.Atoi(m[1])
			r.refused(prompt("gpt-4o", "hi", extra+limit+fmt.Sprintf(`:%d`, n+1)))
			r.begin(r.plan(prompt("gpt-4o", "hi", extra+limit+fmt.Sprintf(`:%d`, n)))).End(t.Context())
		})
	}
	const plain = `"max_tokens"`
	f("cost, never", []budget.Limit{money("w", 5_000_000)}, "", "", plain)
	f("tokens, never", []budget.Limit{tokens("w", 777)}, "", "", plain)
	f("cost, later", []budget.Limit{money("w", 102_000_000)}, `"max_tokens":9000`, "", plain)
	f("tokens, later", []budget.Limit{tokens("w", 10_100)}, `"max_tokens":5000`, "", plain)
	f("two limits", []budget.Limit{money("w", 60_000_000), tokens("t", 3000)}, "", "", plain)
	f("two limits, later", []budget.Limit{money("w", 130_000_000), tokens("t", 10_900)}, `"max_tokens":5000`, "", plain)
	f("several answers", []budget.Limit{money("w", 5_000_000)}, "", `"n":3,`, plain)
	f("prediction", []budget.Limit{money("w", 5_000_000)}, "", `"prediction":{"type":"content","content":"`+strings.Repeat("x", 100)+`"},`, plain)
	f("just one", []budget.Limit{money("w", 8*in+out)}, "", "", plain)
	shadow := tokens("s", 3)
	shadow.Mode = budget.Shadow
	f("shadow does not count", []budget.Limit{money("w", 5_000_000), shadow}, "", "", plain)
	f("nor does it later", []budget.Limit{money("w", 102_000_000), shadow}, `"max_tokens":9000`, "", plain)
}

// TestNoAdvice checks that no output limit is advised if none would help.
func TestNoAdvice(t *testing.T) {
	one := budget.Limit{ID: "one", Subject: budget.User, Metric: budget.Requests, Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 1, Window: time.Hour}}
	r := newRig(t, one, money("w", 100_000_000))
	r.begin(r.plan(prompt("gpt-4o", "hi", `"max_tokens":5`)))
	if e := r.refused(prompt("gpt-4o", "hi", `"max_tokens":50`)); e.Advice != "" || e.Binding.LimitID != "one" {
		t.Errorf("advice %q for limit %s", e.Advice, e.Binding.LimitID)
	}
	r = newRig(t, money("w", 8*in))
	if e := r.refused(prompt("gpt-4o", "hi", `"max_tokens":50`)); e.Advice != "" {
		t.Errorf("advice %q although the input alone is too dear", e.Advice)
	}
	r = newRig(t, tokens("t", 3))
	if e := r.refused(`{"model":"text-embedding-3-small","input":"one two three four five"}`); e.Advice != "" {
		t.Errorf("advice %q for embeddings", e.Advice)
	}
}

// TestRefusalWords checks what a caller is shown, and how its SDK interprets it.
func TestRefusalWords(t *testing.T) {
	status := func(metric budget.Metric, wait time.Duration) budget.Status {
		return budget.Status{LimitID: "quota-team", Subject: budget.User, Metric: metric, Amount: 5_000_000_000, Used: 4_000_000_000, Wait: wait, Refused: true, Never: wait < 0}
	}
	f := func(s budget.Status, code, retry, after, says string) {
		t.Helper()
		e := (&Refusal{ExceededError: &budget.ExceededError{Binding: s, Requested: 2_000_000_000}}).Public()
		if (e.Status == 402) != (code == "insufficient_quota") || e.Code != code || e.Header.Get("X-Should-Retry") != retry || e.Header.Get("Retry-After") != after || !strings.Contains(e.Message, says) {
			t.Errorf("%+v", e)
		}
		if code == "rate_limit_exceeded" && strings.Contains(e.Message, "quota") {
			t.Errorf("some clients would give up on %q", e.Message)
		}
	}
	f(status(budget.Cost, 1400*time.Millisecond), "rate_limit_exceeded", "", "2", "of this user (cost): Limit $5.000000000, Used $4.000000000, Requested $2.000000000. Please try again in 2s.")
	f(status(budget.Tokens, 300*time.Microsecond), "rate_limit_exceeded", "", "1", "Used 4000000000, Requested 2000000000. Please try again in 1ms.")
	f(status(budget.Cost, time.Hour), "rate_limit_exceeded", "false", "3600", "try again in 1h0m0s.")
	closed := status(budget.Cost, time.Hour)
	closed.ClosedUntil = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	f(closed, "rate_limit_exceeded", "false", "3600", "is closed until 2026-11-18T12:00:00Z, because the store lost its data and the amount used is unknown. An operator can reopen it earlier with llmguard limits reopen.")
	f(status(budget.Cost, -1), "insufficient_quota", "false", "", `limit "quota-team"`)
}

func TestRound(t *testing.T) {
	for in, want := range map[time.Duration]time.Duration{
		0: time.Millisecond, 1: time.Millisecond, time.Millisecond: time.Millisecond, 1500 * time.Microsecond: 2 * time.Millisecond,
		time.Second: time.Second, time.Second + 1: 2 * time.Second, 90 * time.Second: 90 * time.Second,
	} {
		if got := round(in); got != want {
			t.Errorf("round(%v) = %v, want %v", in, got, want)
		}
	}
}

// TestCheck checks that what can never fit is refused without asking the store.
func TestCheck(t *testing.T) {
	r := newRig(t)
	shadow := money("shadow", 1)
	shadow.Mode = budget.Shadow
	r.org.Limits = []budget.Limit{shadow, money("w", 8*in+5*out), tokens("t", 13)}
	if err := r.plan(prompt("gpt-4o", "hi", `"max_tokens":5`)).Check(); err != nil {
		t.Errorf("a call that fits exactly: %v", err)
	}
	var e *Refusal
	if err := r.plan(prompt("gpt-4o", "hi", `"max_tokens":6`)).Check(); !errors.As(err, &e) || !e.Final() || e.Binding.LimitID != "w" || !strings.Contains(e.Advice, " of 5.") {
		t.Errorf("a call that can never fit: %v", err)
	}
	closed := budget.Limit{ID: "closed", Subject: budget.User, Metric: budget.Concurrency, Shape: budget.Shape{Kind: budget.Concurrent}}
	r.org.Limits = []budget.Limit{closed}
	if err := r.plan(prompt("gpt-4o", "hi", `"max_tokens":6`)).Check(); !errors.As(err, &e) || e.Advice != "" {
		t.Errorf("a limit of no calls at once: %v", err)
	}
}

// TestTooManyOpenCallsAdviseAShortWait checks that a full concurrency limit advises to retry soon,
// not when the lease of an open call would end.
func TestTooManyOpenCallsAdviseAShortWait(t *testing.T) {
	r := newRig(t, budget.Limit{
		ID: "open", Subject: budget.Org, Metric: budget.Concurrency,
		Shape: budget.Shape{Kind: budget.Concurrent, Amount: 1},
	})
	r.begin(r.plan(prompt("gpt-4o", "hi", `"max_tokens":5`)))
	e := r.refused(prompt("gpt-4o", "hi", `"max_tokens":5`)).Public()
	if got := e.Header.Get("Retry-After"); got != "5" || !strings.Contains(e.Message, "try again in 5s") {
		t.Errorf("Retry-After %s, %q, want 5 seconds", got, e.Message)
	}
}

// TestRefusalTells checks that a refusal carries the state of the limits.
func TestRefusalTells(t *testing.T) {
	r := newRig(t, money("w", 5_000_000))
	h := http.Header{}
	r.refused(prompt("gpt-4o", "hi", `"max_tokens":10000`)).Tell(h)
	if got := h.Get(HeaderLimits); !strings.HasPrefix(got, "w;metric=cost;limit=0.005000000;remaining=0.005000000;reset=") || h.Get("X-Ratelimit-Remaining-Tokens") == "" {
		t.Errorf("headers %v", h)
	}
	h = http.Header{}
	if (&Refusal{ExceededError: &budget.ExceededError{}}).Tell(h); len(h) != 0 {
		t.Errorf("headers %v", h)
	}
}

func TestScale(t *testing.T) {
	const most = 1<<63 - 1
	f := func(n, mul, div, want int64) {
		t.Helper()
		if got := scale(n, mul, div); got != want {
			t.Errorf("scale(%d, %d, %d) = %d, want %d", n, mul, div, got, want)
		}
	}
	f(0, 5, 7, 0)
	f(10, 3, 4, 7)
	f(most, 1, 1, most)
	f(most, most, most, most)
	f(most, most, 1, most) // overflows
	f(most, 2, 1, most)
	f(1<<52, 1_000_000, 10_000_000_000, 450359962737)
	f(1, most, 2, most/2)
}

// TestTellLimits checks that the tightest limit of each kind is reported, and money as what
// it buys.
func TestTellLimits(t *testing.T) {
	r := newRig(t)
	price := r.plan(prompt("gpt-4o", "hi", "")).Price
	s := func(id string, m budget.Metric, mode budget.Mode, amount, remaining int64) budget.Status {
		return budget.Status{LimitID: id, Metric: m, Mode: mode, Amount: amount, Used: amount - remaining, Remaining: remaining, Reset: 90 * time.Second}
	}
	f := func(name string, list []budget.Status, held pricing.Nano, back budget.Amounts, want string) {
		t.Helper()
		h := http.Header{}
		TellLimits(h, &LimitReport{Statuses: list, Price: price, Held: held, Back: back})
		got := ""
		for _, name := range []string{"Limit-Requests", "Remaining-Requests", "Limit-Tokens", "Remaining-Tokens"} {
			got += h.Get("X-Ratelimit-"+name) + " "
		}
		if got += h.Get(HeaderLimits); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
	dollar := s("d", budget.Cost, budget.Enforce, 1_000_000_000, 400_000_000)
	const told = "d;metric=cost;limit=1.000000000;remaining=0.400000000;reset=1m30s"
	f("none", nil, 1, budget.Amounts{}, "    ")
	f("shadow", []budget.Status{s("x", budget.Cost, budget.Shadow, 5, 5)}, 1, budget.Amounts{}, "    ")
	// gpt-4o: $10 a million tokens of output.
	f("money", []budget.Status{dollar}, 1_000_000, budget.Amounts{}, "1000 400 100000 40000 "+told)
	f("free", []budget.Status{dollar}, 0, budget.Amounts{}, "  100000 40000 "+told)
	f("given back", []budget.Status{dollar}, 1_000_000, budget.Amounts{Cost: 100_000_000}, "1000 500 100000 50000 "+strings.Replace(told, "0.4", "0.5", 1))
	f("more than there is", []budget.Status{dollar}, 1_000_000, budget.Amounts{Cost: 900_000_000}, "1000 1000 100000 100000 "+strings.Replace(told, "remaining=0.4", "remaining=1.0", 1))
	f("an overrun", []budget.Status{dollar}, 1_000_000, budget.Amounts{Cost: -900_000_000}, "1000 0 100000 0 "+strings.Replace(told, "0.4", "0.0", 1))
	own := []budget.Status{dollar, s("t", budget.Tokens, budget.Enforce, 100, 60), s("u", budget.Tokens, budget.Enforce, 1000, 50), s("r", budget.Requests, budget.Enforce, 10, 3)}
	f("their own", own, 1_000_000, budget.Amounts{Tokens: 5}, "10 3 1000 55 "+told+
		", t;metric=tokens;limit=100;remaining=65;reset=1m30s, u;metric=tokens;limit=1000;remaining=55;reset=1m30s, r;metric=requests;limit=10;remaining=3;reset=1m30s")
	huge := s("h", budget.Cost, budget.Enforce, 1<<52-1, 1<<52-1)
	f("huge", []budget.Status{huge}, 1, budget.Amounts{}, "4503599627370495 4503599627370495 450359962737 450359962737 h;metric=cost;limit=4503599.627370495;remaining=4503599.627370495;reset=1m30s")
}

// TestTrailer checks that a stream reports its cost in a trailer.
func TestTrailer(t *testing.T) {
	r := newRig(t, roomy()...)
	f := func(directive, estimated string) {
		t.Helper()
		c, w, err := r.run(t.Context(), prompt("gpt-4o", "[fake: output=5 "+directive+"]", `"max_tokens":50,"stream":true`))
		trailer := w.Result().Trailer
		if err != nil || w.Header().Get(HeaderCost) != "" || trailer.Get(HeaderCost) != spelled(c.Result.Cost) || trailer.Get(HeaderEstimate) != estimated {
			t.Errorf("header %v, trailer %v, %v", w.Header(), trailer, err)
		}
	}
	f("", "")
	f("usage=none", "true")
}

// spelled formats an amount as headers do.
func spelled(n pricing.Nano) string { return strings.TrimPrefix(n.String(), "$") }

// TestRefusalOfTheWholeLimit: the refusal of a call that can never fit says what it needs and what
// the limit allows. What was used does not matter.
func TestRefusalOfTheWholeLimit(t *testing.T) {
	r := newRig(t, tokens("w", 777))
	plan := r.plan(prompt("gpt-4o", "hi", `"max_tokens":10000`))
	e := r.refused(prompt("gpt-4o", "hi", `"max_tokens":10000`))
	for _, refusal := range []error{e, plan.Check()} {
		var e *Refusal
		if !errors.As(refusal, &e) {
			t.Fatalf("not refused: %v", refusal)
		}
		text := e.Public().Message
		want := fmt.Sprintf(`The call alone is larger than limit "w" of this user (tokens): it needs up to %d, and the limit `+
			`allows 777. Waiting does not help. It would fit with`, plan.First.Tokens)
		if !strings.HasPrefix(text, want) {
			t.Errorf("got %q, want %q", text, want)
		}
	}
}
