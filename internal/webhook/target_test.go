package webhook

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// offline returns a Sender that never contacts Redis.
func offline(t *testing.T, o Options) *Sender {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { rdb.Close() })
	s, err := New(redistest.DB(rdb), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTargetsOfRequests(t *testing.T) {
	s := offline(t, Options{
		Orgs: map[string]Org{
			"acme": {
				Hosts:   []string{"hooks.acme.example", "*.in.acme.example", "odd.acme.example:8443", "plain.acme.example", "10.1.2.3", "127.0.0.1", "[2606:4700::1]:444"},
				Secrets: []Secret{secret(t, secret1)},
			},
			"other": {},
		},
		AllowHTTP:     []string{"plain.acme.example"},
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
	})
	for _, url := range []string{
		"https://hooks.acme.example/a?b=c", "https://HOOKS.acme.example", "https://hooks.acme.example:443/", "https://x.in.acme.example/",
		"https://a.b.in.acme.example/", "https://odd.acme.example:8443/", "http://plain.acme.example/", "https://10.1.2.3/", "https://[2606:4700::1]:444/",
	} {
		if err := s.CheckURL("acme", url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{
		"", "hooks.acme.example", "//hooks.acme.example", "https:hooks.acme.example", "ftp://hooks.acme.example/", "http://hooks.acme.example/",
		"https://hooks.acme.example:8443/", "https://odd.acme.example/", "https://in.acme.example/", "https://xin.acme.example/", "https://evil.example/",
		"https://hooks.acme.example.evil.example/", "https://evil.example#hooks.acme.example", "https://hooks.acme.example@evil.example/",
		"https://user:pass@hooks.acme.example/", "https://hooks.acme.example/#x", "https://hooks.acme.example\\@evil.example/", "https://hooks.acme.example./",
		"https://h\u00f6oks.acme.example/", "https://127.0.0.1/", "https://10.2.0.1/", "https://[::ffff:10.1.2.3]/", "https://hooks.acme.example/" + strings.Repeat("x", urlMost),
	} {
		var refused *URLError
		if err := s.CheckURL("acme", url); !errors.As(err, &refused) {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, org := range []string{"other", "nobody"} {
		if err := s.CheckURL(org, "https://hooks.acme.example/"); err == nil {
			t.Errorf("%s may name acme's targets", org)
		}
	}
}

func TestMisconfiguredTargets(t *testing.T) {
	one := []Secret{secret(t, secret1)}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	for name, o := range map[string]Org{
		"no secret":             {Endpoints: []Endpoint{{URL: "https://a.example"}}},
		"no secret for hosts":   {Hosts: []string{"a.example"}},
		"no TLS":                {Endpoints: []Endpoint{{URL: "http://a.example", Secrets: one}}},
		"loopback":              {Endpoints: []Endpoint{{URL: "https://[::1]/", Secrets: one}}},
		"the same target twice": {Endpoints: []Endpoint{{URL: "https://a.example", Secrets: one}, {URL: "https://a.example", Secrets: one}}},
	} {
		if _, err := New(redistest.DB(rdb), Options{Orgs: map[string]Org{"acme": o}}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestNotices(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	s := offline(t, Options{Orgs: map[string]Org{
		"jobs":  {Endpoints: []Endpoint{{URL: "https://a.example", Secrets: []Secret{secret(t, secret1)}, Events: []string{"job.f*"}}}},
		"batch": {Endpoints: []Endpoint{{URL: "https://a.example", Secrets: []Secret{secret(t, secret1)}, Events: []string{"batch.*"}}}},
		"all":   {Endpoints: []Endpoint{{URL: "https://a.example", Secrets: []Secret{secret(t, secret1)}}}},
	}})
	for _, c := range []struct {
		notice, state string
		want          Event
	}{
		{s.JobNotice("jobs", ""), "failed", NewEvent("job.failed", "job_1", at)},
		{s.JobNotice("all", ""), "expired", NewEvent("job.expired", "job_1", at)},
		{s.ResponseNotice("all", "resp_1", ""), "succeeded", NewEvent("response.completed", "resp_1", at)},
		{s.ResponseNotice("all", "resp_1", ""), "incomplete", NewEvent("response.incomplete", "resp_1", at)},
		{s.ResponseNotice("all", "resp_1", ""), "expired", NewEvent("response.failed", "resp_1", at)},
	} {
		if got, err := endOf("job_1", c.state, c.notice, at); err != nil || got != c.want {
			t.Errorf("%s of %s is %+v, %v", c.state, c.notice, got, err)
		}
	}
	for _, org := range []string{"batch", "nobody"} {
		if got := s.JobNotice(org, ""); got != "" {
			t.Errorf("%s wants to be told of jobs: %q", org, got)
		}
	}
	e, err := endOf("job_1", "succeeded", s.JobNotice("nobody", "https://x.example/?a=\"b c\""), at)
	if err != nil || e.URL != "https://x.example/?a=\"b c\"" || e.Type != "job.succeeded" {
		t.Errorf("got %+v, %v; want job.succeeded for the URL of the notice", e, err)
	}
	if _, err := endOf("job_1", "queued", "{}", at); err == nil {
		t.Error("a state that is no end makes an event")
	}
}

func TestRetryAfterAndBackoff(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-5": 0, "7": 7 * time.Second, "99999999": retryAfterMost,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:05 GMT": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("Retry-After: %q is %s, want %s", text, got, want)
		}
	}
	var sum time.Duration
	for n := range 40 {
		d := backoff(n)
		most := min(firstPause<<min(n, 20), longestPause)
		if d < most/2 || d > most {
			t.Errorf("pause %d is %s", n, d)
		}
		if sum += d; n == 10 && sum > 8*time.Hour {
			t.Errorf("11 attempts take %s", sum)
		}
	}
	if sum < 72*time.Hour {
		t.Errorf("40 attempts take %s", sum)
	}
}

func TestOneOrgLeavesPlaces(t *testing.T) {
	now := time.Now()
	p := pauses{most: 2, busy: map[string]int{}, until: map[string]time.Time{}}
	leave, wait := p.enter("a", "t", now)
	_, wait2 := p.enter("a", "t", now)
	if _, third := p.enter("a", "u", now); wait != 0 || wait2 != 0 || third < time.Second {
		t.Errorf("three deliveries of an org wait %s, %s, %s", wait, wait2, third)
	}
	if _, other := p.enter("b", "t", now); other != 0 {
		t.Errorf("another org's waits %s", other)
	}
	leave()
	p.rest("t", now.Add(time.Minute))
	if _, rest := p.enter("a", "t", now); rest < time.Minute {
		t.Errorf("a target at rest is asked in %s", rest)
	}
	if _, other := p.enter("a", "u", now); other != 0 {
		t.Errorf("the place that was left is not free for %s", other)
	}
	if _, after := p.enter("b", "t", now.Add(2*time.Minute)); after != 0 {
		t.Errorf("after its rest a target waits %s", after)
	}
}
