package redistest

import "go.uber.org/goleak"

// IgnoreDials is for goleak: after its server has died, a go-redis client sleeps for up to a
// second between dials, even while it is being closed.
func IgnoreDials() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
}
