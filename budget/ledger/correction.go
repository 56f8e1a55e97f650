package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/pricing"
)

var (
	// ErrConflict means that an adjustment with different content has the same id.
	ErrConflict = errors.New("ledger: another adjustment has this id")
	// ErrBelowZero means that an adjustment would give back more than was charged.
	ErrBelowZero = errors.New("ledger: more would be given back than was charged")
	// ErrNotListed means that a charge is no longer on the reconciliation list.
	ErrNotListed = errors.New("ledger: not on the reconciliation list")
)

const (
	adjustPeriod = 64 * 24 * time.Hour // an adjustment's id is remembered for at least this long
	adjustedLife = 2*adjustPeriod + 24*time.Hour
	auditLength  = 1_000_000
	auditLife    = 10 * 365 * 24 * time.Hour // after the last record
)

// Correction records who changed the books by hand, and why.
type Correction struct {
	Corrects string `json:"corrects,omitempty"` // id of the corrected call
	By       string `json:"by,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// maxReason and maxBy are lengths in bytes.
const (
	maxReason = 1000
	maxBy     = 200
)

func (c Correction) validate() error {
	for _, f := range []struct {
		what, text string
		most       int
	}{{"who", c.By, maxBy}, {"a reason", c.Reason, maxReason}} {
		if strings.TrimSpace(f.text) == "" {
			return fmt.Errorf("ledger: a correction needs %s", f.what)
		}
		if len(f.text) > f.most || !utf8.ValidString(f.text) || strings.ContainsFunc(f.text, unicode.IsControl) {
			return fmt.Errorf("ledger: %s of a correction must be one line of at most %d bytes", f.what, f.most)
		}
	}
	return nil
}

// Adjustment corrects what an org was charged. The ledger is append-only: an entry of kind adjust
// is added, dated today.
type Adjustment struct {
	// ID makes a repetition harmless for 64 days or more; 1 to 64 letters, digits, dots, dashes and
	// underscores.
	ID string
	// Call identifies whose bill is corrected. Org is required; ID, if given, is the call that was
	// charged wrongly.
	Call   Call
	Amount pricing.Nano // added to the bill: negative gives back
	By     string
	Reason string
	// Charged bounds a credit by what the call, if it has an ID, and its user were charged, with all corrections;
	// beyond that it is ErrBelowZero.
	Charged bool
}

// FindUse finds what limits counted for the call of a correction. Package budget knows how.
type FindUse func(ctx context.Context) (LimitUse, error)

// LimitUse is what limits counted, which a correction changes together with the books.
type LimitUse struct {
	Limits []string // ids, for the audit
	Runs   []string // ids of the runs among them
	// States are the names of the states of the limits below a place, and Params the arguments of scripts for them.
	States []string
	Params func(now time.Time) ([]any, error)
}

// Adjusted is the result of an adjustment.
type Adjusted struct {
	Replayed bool // it had already been made and was not repeated
	At       time.Time
	Runs     []string // ids of the runs whose spending was corrected, too
}

// Adjust applies an adjustment to the ledger, the day's sums, what limits counted and the audit log, all or nothing.
// ErrConflict means that the ID was used for something else. Call it by budget.Store.Adjust.
func (l *Ledger) Adjust(ctx context.Context, a Adjustment, use FindUse) (Adjusted, error) {
	corrects := a.Call.ID
	call := a.Call
	call.ID, call.Attempt = a.ID, 0
	call.Part = 0 // where the limits count now
	c := correcting{
		id: a.ID, call: call, amount: a.Amount, kind: KindAdjust, adjusted: a.Amount, find: use,
		correction: Correction{Corrects: corrects, By: a.By, Reason: a.Reason}, action: "usage.adjust",
	}
	if !ValidID(a.ID) {
		return Adjusted{}, fmt.Errorf("ledger: adjustment id %.80q must be 1 to 64 letters, digits, dots, dashes or "+
			"underscores", a.ID)
	}
	if !a.Charged || a.Amount > 0 {
		return l.correct(ctx, c)
	}
	for try := 0; ; try++ {
		var err error
		c.most, c.last, err = refundable(ctx, l, c)
		if err != nil {
			return Adjusted{}, err
		}
		done, err := l.correct(ctx, c)
		if !errors.Is(err, errRaced) || try == adjustTries {
			return done, err
		}
	}
}

// Resolution decides a charge on the reconciliation list.
type Resolution struct {
	Charge bool // false drops it
	By     string
	Reason string
}

// Resolve removes an entry that Reconcile returned from the list, and charges or drops it.
// ErrNotListed means that it is already resolved. Call it by budget.Store.Resolve.
func (l *Ledger) Resolve(ctx context.Context, e Entry, r Resolution, use FindUse) (Adjusted, error) {
	if e.listed == "" {
		return Adjusted{}, ErrNotListed
	}
	c := correcting{
		id:   "reconcile:" + e.Call.HoldID() + "@" + strconv.FormatInt(e.At.UnixMicro(), 10),
		call: e.Call, amount: e.Cost, correction: Correction{By: r.By, Reason: r.Reason}, action: "usage.reconcile.drop",
		listed: e.listed,
	}
	if r.Charge {
		c.kind, c.action, c.details, c.calls, c.find = KindCharge, "usage.reconcile.charge", e.Details, 1, use
		if e.Estimated {
			c.estimated = e.Cost
		}
	}
	return l.correct(ctx, c)
}

// correcting holds the arguments of lua/adjust.lua.
type correcting struct {
	id         string
	call       Call
	amount     pricing.Nano
	kind       string // of the ledger entry; empty for none
	calls      int
	estimated  pricing.Nano
	adjusted   pricing.Nano
	details    Details
	correction Correction
	action     string
	listed     string
	find       FindUse       // nil: limits counted nothing
	use        LimitUse      // what it found
	most       *pricing.Nano // that may be given back; nil: anything
	last       string        // the correction before it when most was read
}

func (l *Ledger) correct(ctx context.Context, c correcting) (Adjusted, error) {
	if err := c.correction.validate(); err != nil {
		return Adjusted{}, err
	}
	if c.find != nil {
		use, err := c.find(ctx)
		if err != nil {
			return Adjusted{}, err
		}
		c.use = use
	}
	call, err := l.placeFor(ctx, c, l.o.Place(c.call))
	if err != nil {
		return Adjusted{}, err
	}
	verdict, head, err := l.o.Adjust(ctx, func(now time.Time) ([]string, []any, error) {
		return l.correctArgs(c, call.Place(), now)
	})
	if err != nil {
		return Adjusted{}, err
	}
	switch verdict {
	case "adjusted", "replayed":
		return Adjusted{Replayed: verdict == "replayed", At: time.UnixMicro(head[1]), Runs: c.use.Runs}, nil
	case "below":
		return Adjusted{}, fmt.Errorf("%w: at most %s can be given back", ErrBelowZero, max(*c.most, 0))
	case "raced":
		return Adjusted{}, errRaced
	case "conflict":
		return Adjusted{}, fmt.Errorf("%w: %s, made at %s", ErrConflict, c.id,
			time.UnixMicro(head[1]).UTC().Format(time.RFC3339))
	case "gone":
		return Adjusted{}, ErrNotListed
	default:
		return Adjusted{}, fmt.Errorf("ledger: adjust: unknown verdict %q", verdict)
	}
}

// placeFor returns the call with the part that a correction is made in. A repetition goes to the part
// of the first one, whatever the org's spread is by then, because that part knows its id.
func (l *Ledger) placeFor(ctx context.Context, c correcting, call Call) (Call, error) {
	if c.listed != "" { // it is where it is listed
		return call, nil
	}
	all, err := l.o.Places(ctx, call.Org)
	if err != nil || len(all) == 1 {
		return call, err
	}
	first, before := adjustedKeys(l.o.Now())
	pipe, name := l.o.Redis.Pipeline(), Key(call.Org, "adjusted-in:"+c.id)
	here := []redisconn.Cmd[bool]{
		pipe.HExists(ctx, Key(call.Org, first), c.id), pipe.HExists(ctx, Key(call.Org, before), c.id),
	}
	if err := pipe.Exec(ctx); err != nil {
		return call, l.o.Fault("adjust", err)
	}
	part := call.Part
	if here[0].Val() || here[1].Val() { // perhaps before the org was spread
		part = 1
	}
	pipe = l.o.Redis.Pipeline()
	pipe.SetNX(ctx, name, part, adjustedLife)
	in := pipe.Get(ctx, name)
	if err := pipe.Exec(ctx); err != nil {
		return call, l.o.Fault("adjust", err)
	}
	call.Part, err = in.Int()
	if err != nil {
		return call, fmt.Errorf("ledger: part of correction %s: %w", c.id, err)
	}
	pipe = l.o.Redis.Pipeline()
	NotePart(ctx, pipe, call.Place())
	if err := pipe.Exec(ctx); err != nil {
		return call, l.o.Fault("adjust", err)
	}
	return call, nil
}

func adjustedKeys(now time.Time) (current, before string) {
	period := now.Unix() / int64(adjustPeriod/time.Second)
	return "adjusted:" + strconv.FormatInt(period, 10), "adjusted:" + strconv.FormatInt(period-1, 10)
}

// correctArgs builds the KEYS and ARGV that lua/adjust.lua lists.
func (l *Ledger) correctArgs(c correcting, place string, now time.Time) (keys []string, args []any, err error) {
	day := now.Unix()/86400 - 1
	current, before := adjustedKeys(now)
	days, hours, labels := SumNames(day)
	names := slices.Concat([]string{"ledger", "audit", current, before, "reconcile"}, days[:], hours[:], labels[:],
		c.use.States)
	entry, audit, err := c.texts()
	if err != nil {
		return nil, nil, err
	}
	u, costs := c.details.Usage, c.details.Costs
	args = []any{
		c.id, c.what(), int64(c.amount), c.kind, c.calls, int64(c.estimated), int64(c.adjusted), day,
		RollupField(c.call), u.Input, u.CachedInput, u.CacheWrite + u.CacheWrite1h, u.Output,
		int64(costs.Input), int64(costs.CachedInput), int64(costs.CacheWrite), int64(costs.Output), int64(costs.Fees),
		RollupFields, entry, l.o.Length, l.o.Life.Milliseconds(), l.o.RollupLife.Milliseconds(),
		audit, auditLength, auditLife.Milliseconds(), adjustedLife.Milliseconds(), c.listed,
		l.o.Labels.Fields(c.call), "", c.last,
	}
	if c.most != nil {
		args[len(args)-2] = int64(*c.most)
	}
	sums := c.call.CostSums(l.o.JobLife.Milliseconds(), l.o.BatchLife.Milliseconds())
	args = append(args, len(sums))
	for _, sum := range sums {
		names, args = append(names, sum.Name), append(args, sum.Life)
	}
	for _, name := range names {
		keys = append(keys, Key(place, name))
	}
	if c.use.Params == nil {
		return keys, args, nil
	}
	params, err := c.use.Params(now)
	return keys, append(args, params...), err
}

// what distinguishes a repetition of an adjustment from a different one with the same id.
func (c correcting) what() string {
	return strings.Join([]string{
		c.action, strconv.FormatInt(int64(c.amount), 10), c.call.User, c.call.Key, c.call.Model, c.correction.Corrects,
	}, "|")
}

// texts returns the ledger entry and the audit record, both without the closing brace.
func (c correcting) texts() (entry, audit string, err error) {
	e, err := json.Marshal(struct {
		Call
		Details
		Correction
	}{c.call, c.details, c.correction})
	if err != nil {
		return "", "", fmt.Errorf("ledger: encode ledger entry: %w", err)
	}
	r := AuditRecord{
		Action: c.action, ID: c.id, Correction: c.correction, Org: c.call.Org, User: c.call.User, Key: c.call.Key,
		Model: c.call.Model, Amount: c.amount, Limits: c.use.Limits,
	}
	a, err := json.Marshal(r)
	if err != nil {
		return "", "", fmt.Errorf("ledger: encode audit record: %w", err)
	}
	return strings.TrimSuffix(string(e), "}"), strings.TrimSuffix(string(a), "}"), nil
}

// AuditRecord is one line of an org's audit log: a manual change.
type AuditRecord struct {
	Action string `json:"action"` // usage.adjust, usage.reconcile.charge, usage.reconcile.drop
	ID     string `json:"id"`
	Correction
	Org    string       `json:"org"`
	User   string       `json:"user,omitempty"`
	Key    string       `json:"key,omitempty"`
	Model  string       `json:"model,omitempty"`
	Amount pricing.Nano `json:"amount_nano"`
	Limits []string     `json:"limits,omitempty"` // limits whose use was corrected as well
	At     time.Time    `json:"at,omitzero"`
}

// Audit calls fn for the org's audit records of [from, to), oldest first, until
// fn returns an error. A zero time is no bound.
func (l *Ledger) Audit(ctx context.Context, org string, from, to time.Time, fn func(AuditRecord) error) error {
	all := streamRange{"audit", streamFrom(from), streamTo(to), false}
	return l.stream(ctx, org, all, func(_ string, m redisconn.Entry) error {
		var stored struct {
			AuditRecord
			AtUS int64 `json:"at_us"`
		}
		text, _ := m.Values["e"].(string)
		if err := json.Unmarshal([]byte(text), &stored); err != nil {
			return fmt.Errorf("ledger: audit record %.200q: %w", text, err)
		}
		stored.At = time.UnixMicro(stored.AtUS)
		return fn(stored.AuditRecord)
	})
}

// adjustTries is how often a credit is computed again because another correction was made meanwhile.
const adjustTries = 50

var errRaced = errors.New("ledger: other corrections are being made")

// refundable returns what the corrected call, if there is one, and its user were charged, with all
// corrections, and the last correction of the org before that was read.
func refundable(ctx context.Context, l *Ledger, c correcting) (*pricing.Nano, string, error) {
	call, err := l.placeFor(ctx, c, l.o.Place(c.call))
	if err != nil {
		return nil, "", err
	}
	newest, err := l.o.Redis.XRevRangeN(ctx, Key(call.Place(), "audit"), "+", "-", 1).Result()
	if err != nil {
		return nil, "", l.o.Fault("adjust", err)
	}
	last := ""
	if len(newest) > 0 {
		last = newest[0].ID
	}
	now := l.o.Now()
	days, err := l.UserRollups(ctx, call.Org, call.User, now.Add(-l.o.RollupLife), now.Add(24*time.Hour))
	if err != nil {
		return nil, "", err
	}
	var most, own pricing.Nano
	for i := range days {
		most += days[i].Cost
	}
	corrects := c.correction.Corrects
	if made, ok := IDTime(corrects); ok {
		err = l.Entries(ctx, call.Org, made.Add(-clockSkew), time.Time{}, func(e Entry) error {
			if e.ID == corrects || e.Corrects == corrects {
				own += e.Cost
			}
			return nil
		})
		most = min(most, own)
	}
	return &most, last, err
}
