package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// TestAgentLabels runs the configuration of docs/agents.md: the headers of agents become labels, invalid ones do not refuse a call,
// and a brake stops one session that runs wild.
func TestAgentLabels(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "agents.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?ms)^```yaml\n(labels: agents\n.*?)^```").FindSubmatch(page)
	if shown == nil {
		t.Fatal("docs/agents.md shows no configuration with labels: agents")
	}
	s := newStack(t, fakeprovider.Options{}, string(shown[1])+`
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    over_limit: refuse
    limits: [{name: per-session, subject: [user, session], metric: requests, amount: 25, window: 1d}]
    users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}, {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}]
`)
	p := s.proxy()
	calls := 0
	path := "/chat/completions"
	call := func(who, text string, header ...string) answer {
		calls++
		return post(p.URL+path, s.keys[who], chat("gpt-4o-mini", text, small), header...)
	}
	labelsOf := func(header ...string) ledger.Labels {
		t.Helper()
		want(t, fmt.Sprint(header), call("alice", fmt.Sprint("step ", calls), header...), 200, "")
		list := s.settled("acme", calls)
		return list[len(list)-1].Labels
	}
	for _, c := range []struct {
		header []string
		labels ledger.Labels
	}{
		{[]string{"x-claude-code-session-id", "c1"}, "session=c1"},
		{
			[]string{"x-claude-code-session-id", "c1", "x-claude-code-agent-id", "a2", "x-claude-code-parent-agent-id", "a1"},
			"agent=a2,parent_agent=a1,session=c1",
		},
		{[]string{"session-id", "x1", "thread-id", "t2", "x-codex-parent-thread-id", "t1"}, "agent=t2,parent_agent=t1,session=x1"},
		{[]string{"x-session-id", "ses_1", "x-session-affinity", "ses_1"}, "agent=ses_1,session=ses_1"},
		{[]string{"x-session-id", "ses_2", "x-parent-session-id", "ses_1"}, "agent=ses_2,parent_agent=ses_1,session=ses_1"},
		{[]string{"x-claude-code-session-id", "not valid", "session-id", "x2"}, "session=x2"},
		{[]string{"x-claude-code-agent-id", strings.Repeat("a", 129)}, ""},
	} {
		if got := labelsOf(c.header...); got != c.labels {
			t.Errorf("%v: the ledger has the labels %q, want %q", c.header, got, c.labels)
		}
	}
	path = "/messages"
	if got := labelsOf("x-claude-code-session-id", "c3"); got != "session=c3" {
		t.Errorf("a call of Claude Code has the labels %q, want its session", got)
	}
	// All values of today are used up: those of the calls before still count on their own, new ones together.
	today := time.Now().Unix() / 86400
	for _, day := range []int64{today, today + 1} {
		members := []any{"SADD", ledger.Key("acme", "label-values:agent:"+ledger.DayText(day))}
		for i := range 10_000 {
			members = append(members, i)
		}
		if err := s.redis.Client().Do(t.Context(), members...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for agent, counted := range map[string]ledger.Labels{"a3": "agent=" + ledger.OtherLabel, "a2": "agent=a2"} {
		if got := labelsOf("x-claude-code-agent-id", agent); got != counted {
			t.Errorf("with 10,000 agents, agent %s has the labels %q, want %q", agent, got, counted)
		}
	}

	wildCall := func() answer { return call("alice", "again", "x-claude-code-session-id", "wild") }
	for range 20 {
		want(t, "an equal call of the wild session", wildCall(), 200, "")
	}
	s.settled("acme", calls) // a brake fires for calls that have ended
	if a := wildCall(); a.status != 402 || !strings.Contains(a.body, `"brake_stopped"`) {
		t.Errorf("the 21st equal call of a session: got %d %s, want 402 brake_stopped", a.status, a.body)
	}
	calls-- // it is not charged
	want(t, "another session of the user", call("alice", "again", "x-claude-code-session-id", "calm"), 200, "")
	want(t, "another user's session of this name", call("bob", "again", "x-claude-code-session-id", "wild"), 200, "")
	s.settled("acme", calls)
	for _, c := range []struct{ args, wanted string }{
		{"usage --org acme --by label:session --filter user=alice -o csv", "wild,20,"},
		{"top --once --by label:session --filter session=wild -o json", `"wild"`},
		{"brakes list --org acme", "wild-session +user=alice, session=wild"},
		{"brakes release --org acme --brake wild-session user=alice session=wild --reason checked", "session=wild"},
		{"limits get per-session --org acme --user bob --label session=wild -o json", `"used": *1\b`},
	} {
		if out := s.run(strings.Fields(c.args)...); !regexp.MustCompile(c.wanted).MatchString(out) {
			t.Errorf("llmguard %s prints %s, want %s in it", c.args, out, c.wanted)
		}
	}
	until(t, "the released session goes on", func() bool { return wildCall().status == 200 })
}
