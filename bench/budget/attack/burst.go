package attack

// burst makes 60 parallel calls, of which 10 are within the budget.
var burst = Attack{
	Name: "burst", Title: "60 parallel calls, budget for 10",
	Setup: Setup{Budget: 10 * burstCall.Most()},
	Run: func(a *Arena) error {
		a.Burst(60, func(int) Call { return burstCall })
		return nil
	},
}

var burstCall = Call{Input: 100, Output: 400}
