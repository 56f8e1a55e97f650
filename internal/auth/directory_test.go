package auth

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// A child key follows the secret that created it. If a rotation kept the lineage, it follows the newest secret.
func TestParentOfChildKeys(t *testing.T) {
	now, org := time.Now(), &guard.Org{Org: settings.Org{ID: "acme"}}
	old := Principal{Org: org, User: "alice", Key: "k1", Lineage: "l1", Replaced: true, Expires: now.Add(time.Hour)}
	kept := Principal{Org: org, User: "alice", Key: "k1", Lineage: "l1"}
	fresh := Principal{Org: org, User: "alice", Key: "k1", Lineage: "l2"}
	for name, tc := range map[string]struct {
		now, before *Principal
		lineage     string
		after       time.Duration
		found       bool
		newest      bool
	}{
		"before a rotation":             {now: &kept, lineage: "l1", found: true, newest: true},
		"within the overlap":            {now: &fresh, before: &old, lineage: "l1", found: true},
		"after the overlap":             {now: &fresh, before: &old, lineage: "l1", after: 2 * time.Hour},
		"of the new secret":             {now: &fresh, before: &old, lineage: "l2", found: true, newest: true},
		"kept, within the overlap":      {now: &kept, before: &old, lineage: "l1", found: true, newest: true},
		"kept, after the overlap":       {now: &kept, before: &old, lineage: "l1", after: 2 * time.Hour, found: true, newest: true},
		"without an overlap":            {now: &fresh, lineage: "l1"},
		"of a version without lineages": {now: &fresh, before: &old, after: 2 * time.Hour, found: true, newest: true},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // the order of a map is random
				d := &Directory{ByHash: map[string]Principal{"now": *tc.now}}
				if tc.before != nil {
					d.ByHash["before"] = *tc.before
				}
				p, found := d.Parent("acme", "k1", tc.lineage, now.Add(tc.after))
				if found != tc.found || found && p.Replaced == tc.newest {
					t.Fatalf("got %+v, %t; want found %t, the newest secret %t", p, found, tc.found, tc.newest)
				}
			}
		})
	}
}
