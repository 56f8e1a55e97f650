package config

// checkRaiseRequests checks the requests for more of a limit, in an org or in the defaults: an amount and
// its limit are added in Lua.
func checkRaiseRequests(m *mistakes, path string, r RaiseRequests) {
	if r.MaxAmount.N > MaxQuantity/2 {
		m.failAt(path+".max_amount", "is too large")
	}
}
