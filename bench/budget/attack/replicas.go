package attack

// replicas makes a burst over two processes of the gateway with one store.
var replicas = Attack{
	Name: "replicas", Title: "60 parallel calls over two replicas, budget for 10",
	Setup: Setup{Budget: 10 * burstCall.Most(), Replicas: 2},
	Run: func(a *Arena) error {
		a.Burst(60, func(i int) Call {
			c := burstCall
			c.Replica = i % 2
			return c
		})
		return nil
	},
}
