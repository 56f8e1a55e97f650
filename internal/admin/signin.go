package admin

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/tenants"
)

// refusals records wrong keys in the audit: so few a minute that whoever tries keys
// cannot push what administrators did out of it. It is safe for concurrent use.
type refusals struct {
	rate    *auth.FailureLimiter
	skipped atomic.Int64 // since the last that was recorded
}

// recorded is how many wrong keys the audit takes.
var recorded = auth.Rate{PerMinute: 1, Burst: 30}

// refusalTime is for the record of one.
const refusalTime = time.Second

// refusal is what the audit says of a wrong key.
type refusal struct {
	Path       string `json:"path"`
	Unrecorded int64  `json:"unrecorded,omitempty"` // others since the last entry
}

// refused records that a key was wrong. Known is the administrator whose key it is, who is
// disabled or has expired; "" for no administrator's.
func (c *call) refused(known string) {
	everybody := netip.Addr{}
	if c.denials.rate.Blocked(everybody, c.start) {
		c.denials.skipped.Add(1)
		return
	}
	c.denials.rate.Failed(everybody, c.start)
	e := c.entry("admin.refused", "", known)
	said := refusal{Path: cut(c.r.URL.Path), Unrecorded: c.denials.skipped.Swap(0)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), refusalTime)
	defer cancel()
	if err := c.note(ctx, e, said); err != nil {
		c.log.Warn("audit entry not written", "action", e.Action, "ip", e.IP, "err", err)
	}
}

// note writes an entry about something that has no record of its own.
func (c *call) note(ctx context.Context, e tenants.AuditEntry, after any) error {
	var err error
	if e.After, err = shown(after); err != nil {
		return err
	}
	return c.o.Tenants.Commit(ctx, e)
}

// signIn records that an administrator has opened the console, and tells whose key it is.
// Redis need not answer for it: the log has the entry, too.
func (c *call) signIn() (any, error) { return c.session("admin.sign_in") }

// signOut records that an administrator has left the console.
func (c *call) signOut() (any, error) { return c.session("admin.sign_out") }

func (c *call) session(action string) (any, error) {
	e := c.entry(action, "", c.actor.id)
	c.log.Info("audit", "action", e.Action, "actor", e.Actor, "ip", e.IP, "id", e.RequestID)
	if err := c.note(c.r.Context(), e, nil); err != nil {
		c.log.Error("audit entry not written", "action", e.Action, "actor", e.Actor, "ip", e.IP, "err", err)
	}
	return c.self()
}
