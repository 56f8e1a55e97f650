package e2e

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// documentedKeys combines the patterns of docs/internals/redis-keys.md into one expression.
var documentedKeys = sync.OnceValues(func() (*regexp.Regexp, error) {
	text, err := os.ReadFile("../../docs/internals/redis-keys.md")
	if err != nil {
		return nil, err
	}
	keys, _, _ := strings.Cut(string(text), "\n## Channels") // channels are not keys
	var patterns []string
	for _, m := range regexp.MustCompile("(?m)^\\| `((?:lg|asynq):[^`]+)` \\|").FindAllStringSubmatch(keys, -1) {
		pattern := regexp.QuoteMeta(m[1])
		patterns = append(patterns, regexp.MustCompile(`<[^>]+>`).ReplaceAllString(pattern, ".*"))
	}
	return regexp.Compile("^(?:" + strings.Join(patterns, "|") + ")$")
})

// wantDocumentedKeys fails the test if Redis has a key that matches no pattern in
// docs/internals/redis-keys.md. A Redis that no longer answers has none.
func (s *stack) wantDocumentedKeys() {
	documented, err := documentedKeys()
	if err != nil {
		s.t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	keys := s.redis.Client().Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		if key := keys.Val(); !documented.MatchString(key) {
			s.t.Errorf("docs/internals/redis-keys.md has no pattern for %s", key)
		}
	}
}

// TestEveryKeyIsDocumented: undocumented keys are detected. The check runs at the end of every
// test that uses a stack; here are examples of each kind.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	documented, err := documentedKeys()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{
		"lg:{acme}:holds": true, "lg:{acme}:l:minute:org-requests-x60000000:": true, "lg:{openai@acme}:wait:batch": true,
		"lg:{job_1}:out:2": true, "lg:{identity:}:records": true, "lg:{cap:deployment}:leases": true, "asynq:queues": true,
		"lg:{acme}:hold": false, "lg:new": false, "lg:job:job_1": false, "lg:{acme}": false, "lg:{acme}:new": false, "new": false,
	} {
		if got := documented.MatchString(key); got != want {
			t.Errorf("%s: documented is %v, want %v", key, got, want)
		}
	}
}
