package attack

import "time"

// rotation replaces the caller's key in the middle of a burst. The budget is the user's, so it does not
// begin again with the new key.
var rotation = Attack{
	Name: "key-rotation", Title: "the key is rotated in the middle of a burst",
	Setup: Setup{Budget: 10 * burstCall.Most()},
	Run: func(a *Arena) error {
		var err error
		rotated := make(chan struct{})
		a.Burst(40, func(i int) Call {
			switch {
			case i == 20: // the first 20 calls have the old key
				a.Wait(500 * time.Millisecond)
				err = a.Gateway.Rotate(a.Ctx)
				close(rotated)
			case i > 20:
				<-rotated
			}
			return burstCall
		})
		return err
	},
}
