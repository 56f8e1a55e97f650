package calibration

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// observeOf observes an org's calls and shares them.
func (f *fixture) observeOf(org, version string, estimated, actual int64, n int) {
	f.t.Helper()
	for range n {
		f.ObserveInput(Sample{Org: org, Model: claude, Version: version, Estimated: estimated, Actual: actual})
	}
	f.sync()
}

// TestOrgsLowerTheirOwnHoldsOnly has two orgs whose texts are billed far below their count, and
// one whose calls are billed normally.
func TestOrgsLowerTheirOwnHoldsOnly(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, Options{})
		for range 30 {
			f.observeOf(house, "v1", 3000, 3500, perRound)
		}
		mean, hold := f.Input(house, claude, Prose)
		for range 30 {
			f.observeOf("cheap", "v1", 210, 72, perRound)
			f.observeOf("cheaper", "v1", 210, 72, perRound)
			f.observeOf(house, "v1", 3000, 3500, 1)
		}
		if m, h := f.Input(house, claude, Prose); m > mean || m < 1150 || h > hold || h < 1167 {
			t.Errorf("%d and %d before, %d and %d after, billed at 1167", mean, hold, m, h)
		}
		if m, h := f.Input("new", claude, Prose); m != 1550 || h != 1900 {
			t.Errorf("an org without calls expects %d and holds %d, want the prior", m, h)
		}
		if m, h := f.Input("cheap", claude, Prose); m > 450 || h != floor {
			t.Errorf("the org of the cheap texts expects %d and holds %d, want at least its count", m, h)
		}
	})
}

// TestOrgsRaiseWhatOthersHold: evidence that holds are too low is shared with an org until it
// has its own.
func TestOrgsRaiseWhatOthersHold(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	f.observeOf(house, "v1", 1000, 2500, perRound)
	if _, hold := f.Input("new", claude, Prose); hold < 2500 {
		t.Errorf("an org without calls holds %d, and another is billed at 2500", hold)
	}
	for range 30 {
		f.observeOf("own", "v1", 1000, 1200, perRound)
	}
	if _, hold := f.Input("own", claude, Prose); hold > 1300 {
		t.Errorf("an org whose own calls are billed at 1200 holds %d", hold)
	}
}

// TestOrgsShareABase: small prompts of other orgs are covered.
func TestOrgsShareABase(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	f.learn("v1", synthetic{ratio: 1.15, noise: 0.02, base: 450, least: 20, most: 20_000}, 500)
	for range trusted {
		if _, hold := f.Tokens("new", claude, Prose, 20); hold < 450+23 {
			t.Errorf("an org holds %d for a prompt billed as 473", hold)
		}
		f.observeOf("new", "v1", 3000, 450+3450, 1)
	}
	if base := f.state.Load().inputs[claude].ownBase("new", Prose, 3000); base != 0 {
		t.Errorf("its own prompts, of one size, show a base of %d", base)
	}
}

// TestVersionsAreAnsweredByOrg: the version that answers one org's calls is not assumed for
// another's.
func TestVersionsAreAnsweredByOrg(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	f.observeOf(house, "v1", 1000, 2500, perRound)
	_, hold := f.Input(house, claude, Prose)
	f.observeOf("other", "v2", 1000, 1000, 1)
	if _, h := f.Input(house, claude, Prose); h != hold || h < 2500 {
		t.Errorf("another org's answer changed the hold from %d to %d", hold, h)
	}
}

// TestEntriesWithoutOrgs reads entries of versions that kept one entry for all orgs.
func TestEntriesWithoutOrgs(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client(), Options{})
	f.observeOf("", "v1", 1000, 2500, perRound)
	if _, hold := f.Input(house, claude, Prose); hold < 2500 {
		t.Errorf("held %d, learned 2500", hold)
	}
	if r := f.find(claude); r == nil || r.Org != "" || r.Version != "v1" {
		t.Errorf("listed as %+v", r)
	}
	names := f.rdb.HKeys(t.Context(), key("input")).Val()
	for _, want := range []string{"v\x1fv1\x1fprose", "a\x1f" + claude} {
		found := false
		for _, name := range names {
			found = found || name == want
		}
		if !found {
			t.Errorf("no entry %q in %q", want, names)
		}
	}
}
