package cli_test

import "testing"

// TestLimitsOfUsersAreNamed: where a limit belongs to one user, the hint names the user and the
// command.
func TestLimitsOfUsersAreNamed(t *testing.T) {
	s := newSite(t, "orgs: [{id: acme, users: [{id: alice}, {id: bob}]}]\n")
	if _, notes, code := llmguard(t, "limits", "get", "--org", "acme", "-c", s.file); code != 0 || notes != "no limits; set one with `llmguard limits set`\n" {
		t.Errorf("without limits: %d, %q", code, notes)
	}
	s.must("limits", "set", "daily", "--org", "acme", "--user", "alice", "--amount", "$5", "--window", "1d")
	_, notes, code := llmguard(t, "limits", "get", "--org", "acme", "-c", s.file)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	has(t, notes, "Users with their own limits: alice. Show one with `llmguard limits get --org acme --user alice`")
	s.refuses("limit daily not found; no limit applies here. Users with their own limit daily: alice. "+
		"Show one with `llmguard limits get daily --org acme --user alice`", "limits", "get", "daily", "--org", "acme")
	s.refuses("limit weekly not found; no limit applies here\n", "limits", "get", "weekly", "--org", "acme")
	s.refuses("limit daily not found; no limit applies here\n", "limits", "get", "daily", "--org", "acme", "--user", "bob")
}

// TestAnotherShape: the error about a second shape names the flag that was given, and the command
// that it recommends works.
func TestAnotherShape(t *testing.T) {
	shapes := map[string][]string{
		"window": {"--amount", "$5", "--window", "1h"}, "calendar": {"--amount", "$5", "--calendar", "month"},
		"bucket": {"--capacity", "$5", "--refill", "$1/1h"},
	}
	for _, test := range []struct{ old, given, flag, unset string }{
		{"calendar", "window", "--window", "calendar"},
		{"window", "calendar", "--calendar", "window"},
		{"window", "bucket", "--capacity", "window,amount"},
		{"bucket", "window", "--window", "bucket"},
	} {
		s := newSite(t, orgs)
		set := []string{"limits", "set", "team", "--org", "acme"}
		s.must(append(set, shapes[test.old]...)...)
		another := append(set, shapes[test.given]...)
		s.refuses(test.flag+": the limit already has a "+test.old+", and a limit has one shape. Add --unset "+test.unset+" to replace it", another...)
		s.must(append(another, "--unset", test.unset)...)
	}
	newSite(t, orgs).refuses("--window and --calendar cannot be combined: a limit has one shape", "limits", "set", "team", "--org", "acme",
		"--amount", "$5", "--window", "1h", "--calendar", "month")
}

// TestMistypedCommand: a flag of a command that does not exist is not blamed.
func TestMistypedCommand(t *testing.T) {
	refuses(t, `unknown command "sett" for "llmguard limits"; did you mean set?`, "limits", "sett", "--org", "x")
	refuses(t, "unknown flag: --nope", "limits", "--nope")
	refuses(t, "--limit, --org, --reason and --until are required", "limits", "override")
	refuses(t, "--listen 127.0.0.1:99999: expected host:port with a port from 0 to 65535", "dev", "--listen", "127.0.0.1:99999")
}
