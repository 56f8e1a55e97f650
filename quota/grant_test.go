package quota

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestGrantGoesStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Grant{born: time.Now()}
		time.Sleep(GrantLife - 1)
		if g.Permit() != nil {
			t.Error("stale too early")
		}
		time.Sleep(1 * time.Nanosecond)
		if g.Permit() == nil {
			t.Error("fresh after 500 ms")
		}
	})
}
