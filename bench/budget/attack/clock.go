package attack

import "time"

// clockStep sets the clock of the store ten minutes ahead and back, within the budget's window of a day:
// no money comes back early, and none is locked away.
var clockStep = Attack{
	Name: "clock-step", Title: "the store's clock steps ten minutes ahead and back",
	Setup: Setup{Budget: 20 * burstCall.Most(), Clock: true},
	Run: func(a *Arena) error {
		for _, offset := range []time.Duration{0, 10 * time.Minute, 0, -10 * time.Minute, 0} {
			a.Note("the store's clock is " + offset.String() + " ahead")
			if err := a.Gateway.StepClock(offset); err != nil {
				return err
			}
			a.Wait(200 * time.Millisecond)
			a.Burst(3, func(int) Call { return burstCall })
		}
		return nil
	},
}
