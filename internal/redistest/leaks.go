package redistest

import "go.uber.org/goleak"

// IgnoreDials is for goleak: after its server died, a go-redis client sleeps up to
// a second between dials, also while it is closed.
func IgnoreDials() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
}
