package admin

import (
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/figures"
)

// forecast sets the rate of a limit, and when it is used up.
func (v *Limit) forecast(f budget.Forecast) {
	rate := f.PerHour()
	v.PerHour = &rate
	if f.Known {
		seconds := f.UsedUp.Truncate(time.Second).Seconds()
		v.UsedUp = &seconds
	}
}

// shapeOf describes how capacity returns.
func shapeOf(s budget.Shape) string {
	switch s.Kind {
	case budget.Window:
		return "window " + figures.Lasting(s.Window)
	case budget.ExactWindow:
		return "exact window " + figures.Lasting(s.Window)
	case budget.Fixed:
		return "fixed window " + figures.Lasting(s.Window)
	case budget.Calendar:
		period := s.Calendar
		if s.Starts != "" {
			period += " from " + s.Starts
		}
		zone := "UTC"
		if s.Location != nil {
			zone = s.Location.String()
		}
		return "calendar " + period + " " + zone
	case budget.Bucket:
		if s.Refill == 0 {
			return "bucket, never refilled"
		}
		return "bucket, refilled in " +
			figures.Lasting(budget.Lasting(s.Per.Seconds()*float64(s.Amount)/float64(s.Refill)))
	case budget.Once:
		return "once"
	default:
		return "open calls"
	}
}
