package finance_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/finance"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.ForPackage(m, &shared)) }

// columns is the header of a dataset of FOCUS 1.2, in its order, and the columns of llmguard.
const columns = "AvailabilityZone,BilledCost,BillingAccountId,BillingAccountName,BillingAccountType,BillingCurrency," +
	"BillingPeriodEnd,BillingPeriodStart,CapacityReservationId,CapacityReservationStatus,ChargeCategory,ChargeClass," +
	"ChargeDescription,ChargeFrequency,ChargePeriodEnd,ChargePeriodStart,CommitmentDiscountCategory," +
	"CommitmentDiscountId,CommitmentDiscountName,CommitmentDiscountQuantity,CommitmentDiscountStatus," +
	"CommitmentDiscountType,CommitmentDiscountUnit,ConsumedQuantity,ConsumedUnit,ContractedCost,ContractedUnitPrice," +
	"EffectiveCost,InvoiceId,InvoiceIssuerName,ListCost,ListUnitPrice,PricingCategory,PricingCurrency," +
	"PricingCurrencyContractedUnitPrice,PricingCurrencyEffectiveCost,PricingCurrencyListUnitPrice,PricingQuantity," +
	"PricingUnit,ProviderName,PublisherName,RegionId,RegionName,ResourceId,ResourceName,ResourceType,ServiceCategory," +
	"ServiceName,ServiceSubcategory,SkuId,SkuMeter,SkuPriceDetails,SkuPriceId,SubAccountId,SubAccountName," +
	"SubAccountType,Tags,x_Detail,x_ProviderId,x_TokenClass"

// world is a few orgs with random calls and corrections of this month.
type world struct {
	t     *testing.T
	rdb   *redis.Client
	books *budget.Store
	rng   *rand.Rand
	month finance.Month
	after time.Time // when the month is over
}

// sizes are the orgs and their numbers of calls.
var sizes = map[string]int{"acme": 120, "mobile": 25, "zeta": 3}

func newWorld(t *testing.T) *world {
	t.Helper()
	rdb := shared.Client()
	if err := rdb.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, rdb: rdb, books: budget.New(redistest.DB(rdb), budget.Options{}), rng: rand.New(rand.NewPCG(1, 2)),
		month: finance.MonthOf(time.Now()),
	}
	w.after = w.month.End().Add(48 * time.Hour)
	for org, n := range sizes {
		for range n {
			w.call(org)
		}
		w.adjust(org, -1_200_000_007, w.month.Begin().Add(-time.Hour))
		w.adjust(org, 3, time.Now())
		w.adjust(org, 5, time.Time{})
	}
	return w
}

func pick[T any](w *world, list ...T) T { return list[w.rng.IntN(len(list))] }

func (w *world) call(org string) {
	w.t.Helper()
	labels, err := ledger.NewLabels(map[string]string{"project": pick(w, "", "web", "app"), "team": pick(w, "a", "b")})
	if err != nil {
		w.t.Fatal(err)
	}
	c := ledger.Call{
		ID: wire.NewCallID(), Org: org, User: org + pick(w, "-ann", "-bob"), Key: org + pick(w, "-k1", "-k2"),
		Model: pick(w, "gpt-4o", "gpt-4o-mini", `odd "model", really`), Provider: pick(w, "openai", "spare"),
		Endpoint: pick(w, "chat.completions", "responses"), Labels: labels,
	}
	st := budget.Settlement{Outcome: "completed"}
	cost := func() pricing.Nano { return pricing.Nano(w.rng.Int64N(100_000_000)) }
	switch w.rng.IntN(5) {
	case 0: // from the cache
		st.Outcome, st.Actual.Cost = "cached", cost()/8
	case 1: // without usage
		st.Estimated, st.Actual.Cost = true, cost()
	default:
		st.Usage = pricing.Usage{
			Input: 100 + w.rng.Int64N(1000), CachedInput: w.rng.Int64N(50), CacheWrite: w.rng.Int64N(40), Output: w.rng.Int64N(500),
		}
		st.Split = pricing.Split{Input: cost(), CachedInput: cost(), CacheWrite: cost(), Output: cost(), Fees: cost()}
		st.Actual = budget.Amounts{Cost: st.Split.Total(), Tokens: st.Usage.Input + st.Usage.Output}
	}
	h, err := w.books.Hold(w.t.Context(), budget.Terms{Call: c, Max: st.Actual, Expected: st.Actual})
	if err == nil {
		_, err = w.books.Settle(w.t.Context(), h, st)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// adjust corrects a call that was made at a time, or none.
func (w *world) adjust(org string, amount pricing.Nano, made time.Time) {
	w.t.Helper()
	a := ledger.Adjustment{
		ID: wire.NewCallID(), Call: ledger.Call{Org: org, User: org + "-ann", Key: org + "-k1"}, Amount: amount, By: "carla",
		Reason: "refund <b>",
	}
	if !made.IsZero() {
		a.Call.ID = idAt(made)
		a.Call.Model, a.Call.Provider = "gpt-4o", "openai"
	}
	if _, err := w.books.Adjust(w.t.Context(), a, nil); err != nil {
		w.t.Fatal(err)
	}
}

// idAt returns a call id that was made at a time.
func idAt(at time.Time) string {
	const digits = "0123456789abcdefghjkmnpqrstvwxyz"
	id := []byte(wire.NewCallID())
	for i, ms := 9, at.UnixMilli(); i >= 0; i, ms = i-1, ms>>5 {
		id[i] = digits[ms&31]
	}
	return string(id)
}

// ledger returns the sum of all entries of an org.
func (w *world) ledger(org string) (sum pricing.Nano) {
	w.t.Helper()
	err := w.books.Ledger.Entries(w.t.Context(), org, time.Time{}, time.Time{}, func(e ledger.Entry) error {
		sum += e.Cost
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return sum
}

func (w *world) focus(org, by string, now time.Time) *finance.Focus {
	w.t.Helper()
	dims, err := finance.ParseBy(by)
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := finance.ReadFocus(w.t.Context(), w.books.Ledger, finance.FocusOptions{
		Org: org, OrgName: "The " + org, Month: w.month, By: dims, Now: now,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

// table reads the rows of an export, by column.
func table(t *testing.T, f *finance.Focus) []map[string]string {
	t.Helper()
	var text bytes.Buffer
	if err := f.WriteCSV(&text); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&text).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lines[0], ","); got != columns {
		t.Fatalf("got the columns %s, want %s", got, columns)
	}
	rows := make([]map[string]string, 0, len(lines))
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// nano parses a decimal exactly.
func nano(t *testing.T, text string) (n pricing.Nano) {
	t.Helper()
	digits, negative := strings.CutPrefix(text, "-")
	whole, rest, _ := strings.Cut(digits, ".")
	units, err := strconv.ParseInt(whole+(rest + "000000000")[:9], 10, 64)
	if err != nil || len(rest) > 9 {
		t.Fatalf("%q is no amount: %v", text, err)
	}
	n = pricing.Nano(units)
	if negative {
		n = -n
	}
	return n
}

func total(t *testing.T, rows []map[string]string, column string) (sum pricing.Nano) {
	t.Helper()
	for _, row := range rows {
		sum += nano(t, row[column])
	}
	return sum
}

// TestFocusAddsUp: whatever rows are split by, their costs add up to the ledger to the nano-dollar,
// and no org's rows have anything of another one.
func TestFocusAddsUp(t *testing.T) {
	w := newWorld(t)
	for org := range sizes {
		want := w.ledger(org)
		for _, by := range []string{"", "user", "user,label:project", "key,endpoint,label:team,label:project"} {
			f := w.focus(org, by, w.after)
			rows := table(t, f)
			for _, column := range []string{"BilledCost", "EffectiveCost", "ListCost", "ContractedCost"} {
				if got := total(t, rows, column); got != want {
					t.Errorf("%s by %q: got %s %s, want %s", org, by, column, got, want)
				}
			}
			if f.Total.Cost != want || f.Rows() != len(rows) || f.Incomplete() != "" || f.Provisional() {
				t.Errorf("%s by %q: got the total %s of %d rows, %q, provisional %t, want %s of %d", org, by, f.Total.Cost,
					f.Rows(), f.Incomplete(), f.Provisional(), want, len(rows))
			}
			for _, row := range rows {
				for other := range sizes {
					if other != org && strings.Contains(fmt.Sprint(row), other) {
						t.Fatalf("the rows of %s have something of %s: %v", org, other, row)
					}
				}
			}
		}
	}
}

// TestFocusRows: the rules of the specification hold for every row.
func TestFocusRows(t *testing.T) {
	w := newWorld(t)
	rows := table(t, w.focus("acme", "user,key,label:project", w.after))
	corrected := pricing.Nano(0)
	for _, row := range rows {
		for _, name := range []string{
			"BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodStart", "BillingPeriodEnd", "ChargeCategory",
			"ChargeDescription", "ChargeFrequency", "ChargePeriodStart", "ChargePeriodEnd", "ContractedCost", "EffectiveCost",
			"InvoiceIssuerName", "ListCost", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName",
			"SubAccountId", "SubAccountName", "SubAccountType",
		} {
			if row[name] == "" {
				t.Errorf("%s is null in %v", name, row)
			}
		}
		usage := row["ChargeCategory"] == "Usage"
		for _, name := range []string{
			"PricingQuantity", "PricingUnit", "PricingCategory", "ListUnitPrice", "ContractedUnitPrice", "SkuPriceId",
		} {
			if (row[name] != "") != usage {
				t.Errorf("%s is %q in a row of %s: %v", name, row[name], row["ChargeCategory"], row)
			}
		}
		if row["ChargeClass"] == "Correction" {
			corrected += nano(t, row["BilledCost"])
		}
		if row["Tags"] != "" && !json.Valid([]byte(row["Tags"])) {
			t.Errorf("the tags are no JSON: %s", row["Tags"])
		}
	}
	if want := pricing.Nano(-1_200_000_007); corrected != want {
		t.Errorf("got corrections of earlier months of %s, want %s", corrected, want)
	}
}

// TestFocusQuotes: a cell may contain quotes and commas.
func TestFocusQuotes(t *testing.T) {
	w := newWorld(t)
	for _, row := range table(t, w.focus("acme", "", w.after)) {
		if row["SkuId"] == `openai/odd "model", really` {
			return
		}
	}
	t.Error(`got no row of openai/odd "model", really`)
}

// TestFocusOfTrimmedLedger: when entries are gone, the amounts are still exact, and the export says
// what it lacks.
func TestFocusOfTrimmedLedger(t *testing.T) {
	w := newWorld(t)
	want := w.ledger("acme")
	if err := w.rdb.XTrimMaxLen(t.Context(), "lg:{acme}:ledger", 40).Err(); err != nil {
		t.Fatal(err)
	}
	if w.ledger("acme") == want {
		t.Fatal("nothing was trimmed")
	}
	f := w.focus("acme", "label:project", w.after)
	rows := table(t, f)
	if got := total(t, rows, "BilledCost"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(f.Undetailed) == 0 || !strings.Contains(f.Incomplete(), finance.Days(f.Undetailed)) {
		t.Errorf("got the days %v and %q, want days without labels", f.Undetailed, f.Incomplete())
	}
	if got := w.focus("acme", "user", w.after).Incomplete(); got != "" {
		t.Errorf("without labels: got %q, want a complete export", got)
	}
}

// TestFocusOfOpenMonth: the export of a month that is not over is provisional.
func TestFocusOfOpenMonth(t *testing.T) {
	w := newWorld(t)
	f := w.focus("zeta", "label:project", time.Now())
	if got, want := total(t, table(t, f), "BilledCost"), w.ledger("zeta"); got != want || !f.Provisional() ||
		f.Incomplete() != "" {
		t.Errorf("got %s, provisional %t, %q, want %s", got, f.Provisional(), f.Incomplete(), want)
	}
}

// TestFocusOfOldMonth: sums beyond the retention are missing, and the export says so.
func TestFocusOfOldMonth(t *testing.T) {
	w := newWorld(t)
	w.month = finance.MonthOf(time.Now().AddDate(-2, 0, 0))
	if got := w.focus("zeta", "", time.Now()).Incomplete(); !strings.Contains(got, "is missing") {
		t.Errorf("got %q, want that the cost is missing", got)
	}
}
