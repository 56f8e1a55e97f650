package attack

import "time"

// windowEdge uses up a budget at the end of a period and again at its beginning. It is judged by every
// interval of the budget's length, so a fixed period shows up to twice its amount.
var windowEdge = Attack{
	Name: "window-edge", Title: "all of a budget on both sides of its window's edge",
	Setup: Setup{Budget: 10 * burstCall.Most(), Window: time.Minute},
	Run: func(a *Arena) error {
		now := time.Now()
		edge := now.Truncate(a.Setup.Window).Add(a.Setup.Window)
		if edge.Sub(now) < 6*time.Second {
			edge = edge.Add(a.Setup.Window)
		}
		a.Wait(time.Until(edge.Add(-3 * time.Second)))
		a.Burst(15, func(int) Call { return burstCall })
		a.Wait(time.Until(edge.Add(500 * time.Millisecond)))
		a.Burst(15, func(int) Call { return burstCall })
		a.Note("a window later all is free again")
		a.Wait(a.Setup.Window + a.Setup.Window/30) // two slots of a sixtieth
		return nil
	},
}
