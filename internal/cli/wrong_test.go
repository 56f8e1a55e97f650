package cli_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/llmguard/llmguard/internal/auth/keys"
)

// plausible are valid values for required flags.
var plausible = map[string]string{
	"org": "acme", "user": "alice", "key": "k1", "limit": "daily", "until": "4h", "reason": "r", "amount": "$1",
	"call": "01m7x425asv4hapb0hzey6k903", "policy": "none.yaml",
}

// whole returns a command line with everything that the command requires.
func whole(name string, c *cobra.Command) []string {
	line := strings.Fields(name)
	for _, use := range strings.Fields(c.Use)[1:] {
		if !strings.HasPrefix(use, "[") {
			line = append(line, "x")
		}
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(f.Annotations[cobra.BashCompOneRequiredFlag], "true") {
			line = append(line, "--"+f.Name, plausible[f.Name])
		}
	})
	return line
}

// TestUnknownFlag: an unknown flag yields a one-line error that names it.
func TestUnknownFlag(t *testing.T) {
	for name := range leaves() {
		refuses(t, "unknown flag: --no-such-flag", append(strings.Fields(name), "--no-such-flag")...)
	}
}

// TestUnknownCommand: a mistyped command is named in the error, with the nearest one.
func TestUnknownCommand(t *testing.T) {
	const secret = "lg_live_0123456789"
	for line, want := range map[string]string{
		"chekc":           `unknown command "chekc" for "llmguard"`,
		"usagee":          `unknown command "usagee" for "llmguard"; did you mean usage?`,
		"usage entris":    `unknown command "entris" for "llmguard usage"; did you mean entries?`,
		secret:            "this is a key itself",
		"usage " + secret: "this is a key itself",
		"check " + secret: "this is a key itself",
		"keys " + secret:  "this is a key itself",
	} {
		refuses(t, want, strings.Fields(line)...)
	}
}

// TestTooManyArguments: surplus arguments are an error.
func TestTooManyArguments(t *testing.T) {
	for name, c := range leaves() {
		if strings.HasSuffix(c.Use, "...") || c.DisableFlagParsing {
			continue
		}
		line := append(whole(name, c), "a", "b")
		_, notes, code := llmguard(t, line...)
		if code != 2 || !regexp.MustCompile(`"[ab]" is one too many|unknown command "a"`).MatchString(notes) {
			t.Errorf("%v: exit code %d, error %q; want 2 and the number of arguments", line, code, notes)
		}
	}
}

// TestTooFewArguments: the error names the missing arguments.
func TestTooFewArguments(t *testing.T) {
	tried := 0
	for name, c := range leaves() {
		if c.Args == nil || c.Args(c, nil) == nil {
			continue
		}
		tried++
		_, notes, code := llmguard(t, strings.Fields(name)...)
		if code != 2 || !strings.HasPrefix(notes, "llmguard: `llmguard "+name+"` needs "+strings.Fields(c.Use)[1]) {
			t.Errorf("%s without arguments: exit code %d, error %q", name, code, notes)
		}
	}
	if tried < 30 {
		t.Errorf("%d commands take arguments, want 30 or more", tried)
	}
}

// TestWrongValues: a malformed flag value is a usage error; a value that the server rejects is
// not.
func TestWrongValues(t *testing.T) {
	s := newSite(t, orgs)
	for line, want := range map[string]int{
		"usage --tz Europe/Berln":       2,
		"usage --days -1":               2,
		"usage --from yesterdayy":       2,
		"usage --sort colour":           2,
		"usage entries --kind x":        2,
		"jobs list --limit 0":           2,
		"jobs list --status waiting":    2,
		"top --once --interval 1ns":     2,
		"limits suggest --window never": 2,
		"usage --org nobody":            1,
		"keys list --org nobody":        1,
	} {
		_, notes, code := llmguard(t, append(strings.Fields(line), "-c", s.file)...)
		if code != want {
			t.Errorf("%s: exit code %d, error %q; want %d", line, code, notes, want)
		}
	}
}

// TestRequiredFlags: the error names a missing required flag.
func TestRequiredFlags(t *testing.T) {
	s := newSite(t, orgs)
	for name, c := range leaves() {
		line := whole(name, c)
		if c.Flags().Lookup("config") != nil {
			line = slices.Insert(line, len(strings.Fields(name)), "-c", s.file)
		}
		i := slices.IndexFunc(line, func(w string) bool { return strings.HasPrefix(w, "--") })
		if i < 0 {
			continue
		}
		for at := i; at < len(line); at += 2 {
			refuses(t, line[at]+" is required", slices.Delete(slices.Clone(line), at, at+2)...)
		}
	}
}

// TestUnknownOutput: the error for an unknown output format lists the valid ones.
func TestUnknownOutput(t *testing.T) {
	s := newSite(t, orgs)
	tried := 0
	for name, c := range leaves() {
		f := c.Flags().Lookup("output")
		if f == nil || f.Hidden || !strings.Contains(f.Usage, "json") {
			continue
		}
		tried++
		line := append(whole(name, c), "-o", "toml")
		if c.Flags().Lookup("config") != nil {
			line = append(line, "-c", s.file)
		}
		_, notes, code := llmguard(t, line...)
		if code != 2 || !strings.HasPrefix(notes, "llmguard: --output toml: expected ") || !strings.Contains(notes, "json") {
			t.Errorf("%v: exit code %d, error %q", line, code, notes)
		}
	}
	if tried < 40 {
		t.Errorf("%d commands have forms of output, want 40 or more", tried)
	}
}

// TestMissingFile: without its configuration file, every command names the missing file and
// what to do.
func TestMissingFile(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.yaml")
	tried := 0
	for name, c := range leaves() {
		f := c.Flags().Lookup("config")
		if f == nil || f.DefValue == "" || name == "init" || name == "simulate" || name == "config reload" {
			continue
		}
		tried++
		line := append(whole(name, c), "-c", missing)
		if strings.HasSuffix(name, " delete") || strings.HasSuffix(name, " unset") {
			line = append(line, "--yes")
		}
		if slices.Contains([]string{"orgs update", "users update", "keys update", "limits set"}, name) {
			line = append(line, "--name", "n")
			if name == "limits set" {
				line = append(line[:len(line)-2], "--mode", "shadow")
			}
		}
		if name == "limits reset" {
			line = append(line, "--all")
		}
		if name == "limits override" {
			line = append(line, "--add", "$1")
		}
		if name == "usage adjust" || name == "limits explain" {
			line = append(line, "--user", "x")
		}
		if name == "runs top-up" {
			line = append(line, "--add", "$1")
		}
		if strings.HasPrefix(name, "runs ") || name == "keys child" {
			line = append(line, "--org", "x") // as an administrator
		}
		if name == "keys child" {
			line = append(line, "--parent", "x")
		}
		if name == "orgs credentials set" {
			continue // reads standard input first
		}
		_, notes, code := llmguard(t, line...)
		if code != 1 || !strings.Contains(notes, missing+" not found") || !strings.Contains(notes, "--config") {
			t.Errorf("%v: exit code %d, error %q", line, code, notes)
		}
	}
	if tried < 50 {
		t.Errorf("%d commands need a configuration, want 50 or more", tried)
	}
}

// TestNoStore: every command that needs records names a file without Redis as the cause.
func TestNoStore(t *testing.T) {
	s := newSite(t, "")
	writeFile(t, s.file, "providers: [{id: openai, base_url: \"http://127.0.0.1:1\"}]\norgs: [{id: acme}]\n")
	for _, line := range []string{
		"usage --org acme", "usage entries", "usage audit", "usage reconcile", "usage caps", "jobs list", "queue", "top --once", "orgs list",
		"keys list --org acme", "audit", "orgs purge gone", "webhooks dead", "admins create ops", "limits shadow",
	} {
		s.refuses("no Redis configured", strings.Fields(line)...)
	}
}

// TestStoreUnavailable: with an unreachable Redis every command fails; none returns an empty
// list.
func TestStoreUnavailable(t *testing.T) {
	s := newSite(t, "")
	writeFile(t, s.file, "redis: {addresses: [\"127.0.0.1:1\"]}\nproviders: [{id: openai, base_url: \"http://127.0.0.1:1\"}]\norgs: [{id: acme}]\n")
	for _, line := range []string{"usage", "jobs list", "queue", "orgs list", "audit"} {
		out, notes, code := llmguard(t, append(strings.Fields(line), "-c", s.file)...)
		if code != 1 || out != "" || !strings.Contains(notes, "refused") {
			t.Errorf("%s: exit code %d, output %q, error %q; want 1 and the refused connection", line, code, out, notes)
		}
	}
}

// TestKeyWithLineBreak: a key pasted with a line break is reported as an invalid key, not as a
// network error.
func TestKeyWithLineBreak(t *testing.T) {
	refuses(t, "the administrator's key", "orgs", "list", "--admin-url", "http://127.0.0.1:1", "--admin-key", "lg_admin_x\n")
}

// TestKeyInPlaceOfItsID: a key of any class, whole or not, at any place in the arguments is refused before it is sent,
// and not repeated.
func TestKeyInPlaceOfItsID(t *testing.T) {
	for _, class := range []keys.Class{keys.Live, keys.Admin, keys.Test, keys.Run} {
		key := keys.New(class)
		for _, line := range []string{"usage entries --key " + key, "keys list --org acme --user " + key, "keys get --org acme " + key, "why " + key, "why " + key[:20], "jobs cancel job_1 " + key} {
			_, notes, code := llmguard(t, append(strings.Fields(line), "--admin-url", "http://127.0.0.1:1", "--admin-key", keys.New(keys.Admin))...)
			if code == 0 || !strings.Contains(notes, "this is a key itself") || strings.Contains(notes, key[:20]) {
				t.Errorf("%s: exit code %d, %s; want a refusal without the key", line, code, notes)
			}
		}
	}
}

// TestOutNamesTheFile: the error for an unwritable file names it as the user did.
func TestOutNamesTheFile(t *testing.T) {
	s := newSite(t, orgs)
	file := filepath.Join(t.TempDir(), "absent", "x.csv")
	s.refuses("cannot write "+file+": no such file or directory", "orgs", "list", "--out", file)
}

// TestMistypedCommand: a flag of a command that does not exist is not blamed.
func TestMistypedCommand(t *testing.T) {
	refuses(t, `unknown command "sett" for "llmguard limits"; did you mean set?`, "limits", "sett", "--org", "x")
	refuses(t, "unknown flag: --nope", "limits", "--nope")
	refuses(t, `unknown command "validate" for "llmguard config"; did you mean check?`, "config", "validate")
	refuses(t, "unknown flag: --budget; did you mean --amount?", "limits", "set", "x", "--budget", "$5")
	refuses(t, "`llmguard apply` takes no arguments; \"orgs.yaml\" is one too many; did you mean --file orgs.yaml?", "apply", "orgs.yaml")
	refuses(t, `"x.yaml" is one too many; did you mean --config x.yaml?`, "check", "x.yaml")
	refuses(t, `"acme" is one too many; did you mean --org acme?`, "stop", "acme")
	refuses(t, `"day" is one too many; put a value with spaces in quotes`, "limits", "set", "x", "--org", "a", "--window", "1", "day")
	refuses(t, "--days 7d: expected a whole number", "usage", "--days", "7d")
	refuses(t, "--interval 1: expected a duration such as 30s, 5m or 1h", "top", "--interval", "1")
	refuses(t, "--limit, --org, --reason and --until are required", "limits", "override")
	refuses(t, "--listen 127.0.0.1:99999: expected host:port with a port from 0 to 65535", "dev", "--listen", "127.0.0.1:99999")
}

// TestMistypedVariable: a command does not run at another deployment because a variable's name is mistyped.
func TestMistypedVariable(t *testing.T) {
	t.Setenv("LLMGUARD_ADMIN_ULR", "http://127.0.0.1:1")
	refuses(t, "does not read the environment variable LLMGUARD_ADMIN_ULR; did you mean LLMGUARD_ADMIN_URL?", "orgs", "list")
	t.Setenv("LLMGUARD_ADMIN_KEY_2", "x")
	refuses(t, "cannot reach", "orgs", "list", "--admin-url", "http://127.0.0.1:1", "--admin-key", "x")
	refuses(t, "none.yaml not found", "orgs", "list", "-c", "none.yaml")
	t.Setenv("LLMGUARD_ADMIN_URL", "http://127.0.0.1:1")
	t.Setenv("LLMGUARD_ADMIN_KEY", "x")
	refuses(t, "cannot reach", "orgs", "list")
}
