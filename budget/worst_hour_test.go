package budget_test

import (
	"math"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
)

// TestMostPerHour: what a limit admits in an hour follows from its shape.
func TestMostPerHour(t *testing.T) {
	for name, tc := range map[string]struct {
		shape budget.Shape
		want  int64
	}{
		"a window of an hour":         {budget.Shape{Kind: budget.Window, Amount: 5, Window: time.Hour}, 5},
		"a window of a minute":        {budget.Shape{Kind: budget.Window, Amount: 5, Window: time.Minute}, 300},
		"a window of 50 minutes":      {budget.Shape{Kind: budget.Window, Amount: 5, Window: 50 * time.Minute}, 10},
		"a window of a day":           {budget.Shape{Kind: budget.Window, Amount: 5, Window: 24 * time.Hour}, 5},
		"an exact window":             {budget.Shape{Kind: budget.ExactWindow, Amount: 5, Window: time.Second}, 18000},
		"a fixed window of 5 minutes": {budget.Shape{Kind: budget.Fixed, Amount: 5, Window: 5 * time.Minute}, 60},
		"a fixed window of 7 minutes": {budget.Shape{Kind: budget.Fixed, Amount: 5, Window: 7 * time.Minute}, 50},
		"a fixed window of 90 min":    {budget.Shape{Kind: budget.Fixed, Amount: 5, Window: 90 * time.Minute}, 10},
		"a fixed window of 2 hours":   {budget.Shape{Kind: budget.Fixed, Amount: 5, Window: 2 * time.Hour}, 5},
		"a calendar minute":           {budget.Shape{Kind: budget.Calendar, Amount: 5, Calendar: "minute"}, 300},
		"a calendar month":            {budget.Shape{Kind: budget.Calendar, Amount: 5, Calendar: "month"}, 5},
		"a bucket":                    {budget.Shape{Kind: budget.Bucket, Amount: 5, Refill: 2, Per: time.Minute}, 125},
		"a bucket that is not filled": {budget.Shape{Kind: budget.Bucket, Amount: 5}, 5},
		"a bucket in whole numbers":   {budget.Shape{Kind: budget.Bucket, Amount: 1, Refill: 45e9, Per: 50 * time.Minute}, 54e9 + 1},
		"a refill beyond counting":    {budget.Shape{Kind: budget.Bucket, Amount: 1, Refill: budget.MaxAmount, Per: time.Second}, math.MaxInt64},
		"a large amount":              {budget.Shape{Kind: budget.Window, Amount: budget.MaxAmount, Window: 2 * time.Second}, 1800 * budget.MaxAmount},
		"open calls":                  {budget.Shape{Kind: budget.Concurrent, Amount: 5}, math.MaxInt64},
		"more than can be counted":    {budget.Shape{Kind: budget.Window, Amount: budget.MaxAmount, Window: time.Second}, math.MaxInt64},
	} {
		if got := tc.shape.MostPerHour(tc.shape.Amount); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}
