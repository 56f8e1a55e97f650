package cli_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants"
)

// stat returns a number from a section of Redis INFO; 0 for a command that never ran.
func (s *site) stat(section, name string) int {
	s.t.Helper()
	text, err := s.redis.Info(s.t.Context(), section).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, name)
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	n, _ := strconv.Atoi(digits)
	return n
}

// TestAdminWritesCostTheSame: the cost of an admin write in Redis does not grow with the number
// of users, because processes do not reread all records.
func TestAdminWritesCostTheSame(t *testing.T) {
	const users, writes = 3000, 3
	l := newLive(t, "")
	ids := tenants.New(redistest.DB(l.redis), tenants.Options{Log: slog.New(slog.DiscardHandler)})
	var all []tenants.Change
	for n := range users {
		ref := tenants.Ref{Kind: tenants.KindUser, Org: "acme", ID: fmt.Sprintf("user-%05d", n)}
		all = append(all, tenants.Change{Ref: ref, New: tenants.User{}})
	}
	if err := ids.Commit(t.Context(), tenants.AuditEntry{Action: "user.create"}, all...); err != nil {
		t.Fatal(err)
	}
	await(t, "the process knows the users", func() bool {
		return status(l.app.AdminURL()+"/admin/v1/orgs/acme/users/user-02999", l.admin) == http.StatusOK
	})
	scans := l.stat("commandstats", "cmdstat_hscan:calls=")
	before := l.stat("stats", "total_net_output_bytes:")
	for n := range writes {
		l.ask("users", "create", fmt.Sprint("newcomer-", n), "--org", "acme")
	}
	if more := l.stat("commandstats", "cmdstat_hscan:calls=") - scans; more > 0 {
		t.Errorf("%d scans of all records after %d writes", more, writes)
	}
	// Rereading everything would take 100 KB. Other requests of the running processes are
	// included.
	if each := (l.stat("stats", "total_net_output_bytes:") - before) / writes; each > 60_000 {
		t.Errorf("Redis sends %d bytes for a write", each)
	}
}
