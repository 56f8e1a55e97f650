package tasks

import "testing"

// TestFetchesRest: a pool that the server does not serve, or whose last fetch failed, does not keep the fetches of
// other pools busy, although a job of it waits.
func TestFetchesRest(t *testing.T) {
	t.Parallel()
	g := newGate(nil)
	waits := &turn{pool: "x"}
	g.wait(waits, func(*turn) {})
	defer waits.late.Stop()
	f := func(what string, served map[string]int, atOnce bool) {
		t.Helper()
		g.serve(served)
		if _, _, _, rest := g.next("a"); (rest == 0) != atOnce {
			t.Errorf("%s: the fetch of another pool rests for %v", what, rest)
		}
	}
	f("a job waits", map[string]int{"a": 1, "x": 1}, true)
	f("its pool is not served", map[string]int{"a": 1}, false)
	g.serve(map[string]int{"a": 1, "x": 1})
	_, n, _, _ := g.next("x")
	g.fetched("x", n, nil, true)
	f("its fetch failed", map[string]int{"a": 1, "x": 1}, false)
	g.fetched("a", 0, []string{"handed to asynq", "kept"}, false)
	g.serve(map[string]int{"x": 1})
	g.serve(map[string]int{"a": 1, "x": 1})
	if task, _, _, _ := g.next("a"); task != "" {
		t.Errorf("%s was fetched for a pool that had left the server", task)
	}
}
