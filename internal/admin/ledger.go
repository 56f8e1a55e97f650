package admin

import (
	"bufio"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// streamed is an answer of JSON lines, written while they are read. An error after the first
// line is the last one: {"error": {...}}.
type streamed func(line func(any) error) error

// errGone says that who asked for a stream reads no more of it.
var errGone = errors.New("admin: the reader of a stream is gone")

// followed is streamed with each line sent as soon as it is there.
type followed streamed

func (c *call) stream(read streamed, each bool) {
	c.status = http.StatusOK
	c.w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriterSize(c.w, 1<<16)
	enc := stdjson.NewEncoder(out)
	enc.SetEscapeHTML(false)
	err := read(func(v any) error {
		err := enc.Encode(v)
		if err == nil && each {
			err = out.Flush()
			c.flush()
		}
		if err != nil {
			return errors.Join(errGone, err)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errGone) {
		c.log.Error("an administrator's stream broke off", "id", c.id, "err", err)
		_, _ = out.Write(append(public(err).JSON(), '\n'))
	}
	_ = out.Flush() // who is gone reads no error either
}

var periodParameters = []parameter{
	{"from", "Not before this time (RFC 3339)"},
	{"to", "Before this time (RFC 3339)"},
}

// period reads from and to; none is the zero time.
func (c *call) period() (from, to time.Time, err error) {
	return from, to, errors.Join(c.instant("from", &from), c.instant("to", &to))
}

// listLedger streams an org's ledger.
func (c *call) listLedger() (any, error) {
	org := c.r.PathValue("org")
	if _, _, err := c.org(org); err != nil {
		return nil, err
	}
	from, to, err := c.period()
	if err != nil {
		return nil, err
	}
	read := c.o.Budget.Ledger.Entries
	switch order := c.r.URL.Query().Get("order"); order {
	case "", "oldest":
	case "newest":
		read = c.o.Budget.Ledger.Recent
	default:
		return nil, wire.BadRequest("order", "invalid_value", "order must be oldest or newest")
	}
	return streamed(func(line func(any) error) error {
		return read(c.r.Context(), org, from, to, func(e budget.Entry) error { return line(e) })
	}), nil
}

// listCorrections streams what was corrected of an org's bill by hand.
func (c *call) listCorrections() (any, error) {
	org := c.r.PathValue("org")
	if _, _, err := c.org(org); err != nil {
		return nil, err
	}
	from, to, err := c.period()
	if err != nil {
		return nil, err
	}
	return streamed(func(line func(any) error) error {
		return c.o.Budget.Ledger.Audit(c.r.Context(), org, from, to, func(r budget.AuditRecord) error { return line(r) })
	}), nil
}

// correction is what an administrator orders of a bill.
type correction struct {
	// ID makes repeating it harmless; made up when left out.
	ID string `json:"id,omitempty"`
	// Call is the id of the call that was charged wrongly; user, key and model are its own.
	Call  string `json:"call,omitempty"`
	User  string `json:"user,omitempty"`
	Key   string `json:"key,omitempty"`
	Model string `json:"model,omitempty"`
	// Amount is added to the bill: "-$1.20" gives back.
	Amount string `json:"amount"`
	// Limits changes the present use of the cost limits as well.
	Limits bool   `json:"limits,omitempty"`
	Reason string `json:"reason"`
	By     string `json:"by,omitempty"` // who does it; on this machine only
}

// Corrected is what became of a correction.
type Corrected struct {
	ID       string    `json:"id"`
	Org      string    `json:"org"`
	User     string    `json:"user"`
	Amount   int64     `json:"amount_nano_usd"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	Replayed bool      `json:"replayed"` // it was made before, and nothing has changed
	Limits   []string  `json:"limits"`   // whose present use was changed as well
}

// by is who a correction names.
func (c *call) by(named string) (string, error) {
	switch {
	case !c.actor.local && named != "":
		return "", wire.BadRequest("by", "invalid_value", "by is for commands on the machine itself; over the network it is the administrator")
	case named != "":
		return named, nil
	}
	return strings.TrimPrefix(c.actor.id, "local:"), nil
}

func (c *call) createCorrection() (any, error) {
	org := c.r.PathValue("org")
	var n correction
	if err := c.read(&n); err != nil {
		return nil, err
	}
	o, _, err := c.org(org)
	if err != nil {
		return nil, err
	}
	by, err := c.by(n.By)
	if err != nil {
		return nil, err
	}
	a := budget.Adjustment{ID: n.ID, Call: budget.Call{Org: org, User: n.User, Key: n.Key, Model: n.Model}, By: by}
	if a.Reason, err = c.needed(n.Reason, "A correction"); err != nil {
		return nil, err
	}
	if a.Amount, err = signed(n.Amount); err != nil {
		return nil, err
	}
	if a.ID == "" {
		a.ID = wire.NewCallID()
	}
	switch {
	case n.Call != "":
		a.Call, err = c.charged(org, n)
	case n.User == "":
		err = wire.BadRequest("user", "missing_field", "Name the user whose bill it is, or the call")
	default:
		if _, _, err = c.user(o, n.User); err != nil {
			err = wire.NotFound("user", "user_not_found", "Org %s has no user %.80q. The bill of one who has left is corrected by call", org, n.User)
		}
	}
	if err != nil {
		return nil, err
	}
	if n.Limits {
		if a.Limits, err = c.o.LimitsOf(a.Call); err != nil {
			return nil, err
		}
	}
	done, err := c.o.Budget.Ledger.Adjust(c.r.Context(), a)
	if err != nil {
		return nil, corrected(err)
	}
	return created{Corrected{a.ID, org, a.Call.User, int64(a.Amount), a.By, done.At.UTC(), done.Replayed, costNames(a.Limits)}}, nil
}

// needed is a reason that must be there.
func (c *call) needed(given, what string) (string, error) {
	reason, err := c.reason(given)
	if err == nil && reason == "" {
		err = wire.BadRequest("reason", "missing_field", "%s needs a reason", what)
	}
	return reason, err
}

// signed reads an amount that may be negative.
func signed(text string) (pricing.Nano, error) {
	digits, negative := strings.CutPrefix(strings.TrimSpace(text), "-")
	digits = strings.TrimPrefix(digits, "+")
	n, err := pricing.ParseUSD(digits)
	if err != nil || n == 0 {
		return 0, wire.BadRequest("amount", "invalid_value", "amount %s: expected an amount such as -$1.20 or $0.05, not 0", cut(text))
	}
	if negative {
		n = -n
	}
	return n, nil
}

// clockSkew is how far the clocks of proxies and Redis may be apart.
const clockSkew = 10 * time.Minute

// errEnough ends a reading of the ledger.
var errEnough = errors.New("admin: enough")

// charged finds the call that is corrected, and checks what else was said of it.
func (c *call) charged(org string, n correction) (budget.Call, error) {
	var found budget.Call
	at, ok := wire.CallTime(n.Call)
	if !ok {
		return found, wire.BadRequest("call", "invalid_value", "call %s: this is not a call's id (26 letters and digits)", cut(n.Call))
	}
	err := c.o.Budget.Ledger.Entries(c.r.Context(), org, at.Add(-clockSkew), time.Time{}, func(e budget.Entry) error {
		if e.ID != n.Call {
			return nil
		}
		found = e.Call
		return errEnough
	})
	if err != nil && !errors.Is(err, errEnough) {
		return found, err
	}
	if found.ID == "" {
		return found, wire.NotFound("call", "call_not_found",
			"The ledger of org %s has no such call. If it is too old, leave the call out and name user, key and model", org)
	}
	for _, f := range [][3]string{{"user", n.User, found.User}, {"key", n.Key, found.Key}, {"model", n.Model, found.Model}} {
		if f[1] != "" && f[1] != f[2] {
			return found, wire.BadRequest(f[0], "invalid_value", "The call was made by %s %q, not %q", f[0], f[2], f[1])
		}
	}
	return found, nil
}

// costNames are the limits on cost in a list, whose use a correction changes.
func costNames(limits []budget.Limit) []string {
	out := []string{}
	for _, l := range limits {
		if l.Metric == budget.Cost {
			out = append(out, l.ID)
		}
	}
	return out
}

// corrected words an error of a correction.
func corrected(err error) error {
	switch {
	case errors.Is(err, budget.ErrNotListed), errors.Is(err, budget.ErrConflict):
		return conflict("changed_meanwhile", "Another administrator has just done it, or the id was used for something else: "+err.Error())
	case errors.Is(err, budget.ErrUnavailable):
		return err
	}
	return wire.BadRequest("", "invalid_value", "%v", err)
}
