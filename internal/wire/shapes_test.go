package wire

import (
	"fmt"
	"maps"
	"testing"
)

// TestShapesNameTheirServers: no table has a row of which nobody knows who needs it, and no place twice.
func TestShapesNameTheirServers(t *testing.T) {
	seen := map[string]bool{}
	row := func(table, name, servers string) {
		name = table + " " + name
		if servers == "" || seen[name] {
			t.Errorf("%s: servers %q, or it is there twice", name, servers)
		}
		seen[name] = true
	}
	for at, m := range usagePlaces {
		row("usage", fmt.Sprint(at.in, at.name), m.servers)
	}
	for name, root := range usageRoots {
		row("roots", name, root.servers)
	}
	for i, texts := range []map[string]textShape{choiceShapes, messageShapes, partShapes, callShapes} {
		for name, m := range texts {
			row(fmt.Sprint("texts ", i), name, m.servers)
		}
	}
	for name, f := range failureShapes {
		row("failures", name, f.servers)
	}
	for i, shapes := range [][]shape{errorObjects, errorTexts} {
		for _, s := range shapes {
			row(fmt.Sprint("errors ", i), s.path, s.servers)
		}
	}
	for i, shapes := range [][]limitShape{limitShapes, splitShapes} {
		for _, l := range shapes {
			row(fmt.Sprint("limits ", i), l.limit, l.servers)
		}
	}
	if len(seen) < 80 {
		t.Errorf("read %d rows: %v", len(seen), maps.Keys(seen))
	}
}

// TestAccountsOfEveryForm: what an error says of the account is found wherever the error is.
func TestAccountsOfEveryForm(t *testing.T) {
	for body, want := range map[string]bool{
		`{"error":{"code":"account_deactivated","message":"m"}}`:                                             true,
		`[{"error":{"code":403,"message":"m","status":"UNAUTHENTICATED"}}]`:                                  true,
		`{"error":{"code":400,"message":"m","details":[{},{"reason":"API_KEY_INVALID"}]}}`:                   true,
		`{"message":"m","code":"account_deactivated"}`:                                                       true,
		`{"choices":[{"error":{"code":"billing_not_active","message":"m"}}]}`:                                true,
		`{"errors":[{"code":"invalid_api_key","message":"m"}]}`:                                              true,
		`{"error":{"code":"model_not_allowed","message":"account_deactivated","details":"API_KEY_INVALID"}}`: false,
		`{"error":{"code":"account_deactivated"`:                                                             false,
	} {
		if got := RefusesAccount(403, []byte(body)); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}
