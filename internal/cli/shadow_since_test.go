package cli_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// TestShadowOfTheFileCountsFromWhenItWasThere: calls made before a limit of the file was in
// shadow mode, or had its present amount, are not counted as let through by it.
func TestShadowOfTheFileCountsFromWhenItWasThere(t *testing.T) {
	l := newLive(t, "")
	good, err := os.ReadFile(l.file)
	if err != nil {
		t.Fatal(err)
	}
	var before time.Time
	shadow := func(amount string) {
		t.Helper()
		tight := `limits: [{name: tight, subject: org, amount: "` + amount + `", window: 1h, mode: shadow}, `
		writeFile(t, l.file, strings.Replace(string(good), "limits: [", tight, 1))
		l.ask("config", "reload")
		await(t, "the limit is noted", func() bool {
			var list []struct {
				Name  string
				Since *time.Time `json:"shadow_since"`
			}
			if err := json.Unmarshal([]byte(l.ask("limits", "get", "--org", "acme", "-o", "json")), &list); err != nil {
				t.Fatal(err)
			}
			for _, one := range list {
				if one.Name == "tight" && one.Since != nil && one.Since.After(before) {
					before = *one.Since
					return true
				}
			}
			return false
		})
	}
	report := func(calls, held int) {
		t.Helper()
		var r struct {
			Calls int
			Held  int `json:"held_back"`
		}
		if err := json.Unmarshal([]byte(l.ask("limits", "shadow", "--days", "1", "-o", "json")), &r); err != nil {
			t.Fatal(err)
		}
		if r.Calls != calls || r.Held != held {
			t.Errorf("%d of %d calls held back, want %d of %d", r.Held, r.Calls, held, calls)
		}
	}
	l.spend("before the limit")
	shadow("$0.000001")
	report(0, 0)
	l.spend("under it")
	report(1, 1)
	shadow("$1")
	report(0, 0)
	l.spend("under the larger one")
	report(1, 0)
}
