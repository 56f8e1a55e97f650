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
		if !g.Fresh() {
			t.Error("stale too early")
		}
		time.Sleep(1 * time.Nanosecond)
		if g.Fresh() {
			t.Error("fresh after 500 ms")
		}
	})
}
