package budget

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/figures"
)

// TestEndless distinguishes what empties late from what never does, in text and in JSON.
func TestEndless(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 90*time.Minute + time.Millisecond: "1h 30m", Endless: "never", span(math.MaxInt64): "never",
		span(century.Microseconds()): "36525d", span(century.Microseconds() + 1): "never",
		Lasting(Endless.Seconds()): "never", Lasting(math.Inf(1)): "never", Lasting(math.NaN()): "never", Lasting(-1): "0s", Lasting(2): "2s",
	} {
		if got := figures.Lasting(d); got != want {
			t.Errorf("%d ns is %q, want %q", d, got, want)
		}
	}
	f := newFixture(t, onMiniredis(t), Options{})
	ctx := t.Context()
	limits := []Limit{costLimit("all", Org, Shape{Kind: Bucket, Amount: 100}), costLimit("slow", Org, Shape{Kind: Bucket, Amount: 1e14, Refill: 1, Per: time.Hour})}
	f.settle(ctx, f.hold(ctx, limits, 60), 60)
	list, err := f.Peek(ctx, limits[:1], f.call())
	if err != nil || list[0].Reset != Endless {
		t.Fatalf("%+v, %v", list, err)
	}
	text, err := json.Marshal(list[0])
	if err != nil || !strings.Contains(string(text), `"reset_seconds":null`) {
		t.Errorf("%s, %v", text, err)
	}
	_, err = f.Hold(ctx, Terms{Limits: limits, Call: f.call(), Max: cost(60), Expected: cost(60)})
	var e *ExceededError
	if !errors.As(err, &e) || !e.Binding.Never || strings.Contains(e.Error(), "2562047h") {
		t.Errorf("a hold that never fits: %v", err)
	}
	limits[1].Shape.Amount = 1e14
	f.settle(ctx, f.hold(ctx, limits[1:], 1e14-60), 1e14-60)
	_, err = f.Hold(ctx, Terms{Limits: limits[1:], Call: f.call(), Max: cost(1e13), Expected: cost(1e13)}) // in a billion years
	if !errors.As(err, &e) || !e.Binding.Never || e.Binding.Wait < 0 {
		t.Errorf("a hold that fits in a billion years: %v", err)
	}
}
