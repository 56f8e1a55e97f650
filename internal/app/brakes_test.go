package app

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants"
)

// A call waits for the record of a firing for a short time only. Those after it are refused nevertheless, and those of others
// are not.
func TestFiringCountsBeforeItIsRecorded(t *testing.T) {
	ids := tenants.New(redistest.Start(t).DB(), tenants.Options{Log: slog.New(slog.DiscardHandler)})
	k := &brakeKeeper{store: ids, firings: make(chan guard.BrakeFiring, 1), pending: map[firingID]*pendingFiring{}}
	brake, err := budget.NewBrake(budget.Brake{
		ID: "loop", Subject: budget.User, Action: budget.BrakeStop, Rule: budget.BrakeRule{Window: time.Minute, Calls: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := guard.BrakeFiring{Org: "acme", Braking: guard.Braking{Brake: brake, Value: "ann"}, At: time.Now()}
	left, cancel := context.WithCancel(t.Context())
	cancel() // nothing records it
	k.fire(left, f)
	if b := k.records("acme")[tenants.BrakeID("loop", "ann")]; !b.Fired(time.Now()) || b.Action != "stop" {
		t.Errorf("got %+v, want a brake that has fired", b)
	}
	if n := len(k.records("acme")) + len(k.records("initech")); n != 1 {
		t.Errorf("got %d records, want one", n)
	}
	k.done(redistest.Came(t, k.firings))
	if n := len(k.records("acme")); n != 0 {
		t.Errorf("got %d records of a firing that could not be recorded, want none", n)
	}
}
