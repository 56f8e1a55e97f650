package world

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// Scripts runs the scripts of a directory, each in a world of its own. seen is told the operations that each used; it
// may be called by several scripts at once. Besides testscript's own, the commands are:
//
//   - worker: a worker, which jobs and waiting calls need; a world starts without one
//   - llmguard ARGS...: the CLI, for the running process with the key of the administrator ops
//   - exits CODE llmguard ARGS...: the CLI, which ends with this exit code
//   - api METHOD PATH [JSON [MEMBERS]]: a request to the admin API, below /admin/v1, and members of its answer
//   - refused STATUS CODE PARAM METHOD PATH [JSON]: one that is refused, because of this parameter (-: none)
//   - call USER [MODEL] [TEXT]: a chat completion with the key of the user, `$KEY_USER`
//   - job USER [MODEL] [TEXT]: the same in the queue
//   - v1 USER METHOD PATH [JSON]: another request of a caller, below /v1
//   - page PATH: the text of a page of the console
//   - press ACTION [FIELD=VALUE...]: an action of the console, confirmed
//   - signout: the end of the session in the console; the next page signs in again
//   - until REGEXP COMMAND...: the command, repeated until its output matches
//   - let NAME REGEXP: sets a variable to what the group in the expression matched in the output before
//   - provider DIRECTIVES...: how the provider answers from now on, such as status=500: fakeprovider.ParseDirectives
//   - hooks STATUS: how the receiver of webhooks answers from now on
//   - restart: llmguard, with the configuration as it is now
func Scripts(t *testing.T, binary, dir string, seen func(operations []string)) {
	testscript.Run(t, testscript.Params{
		Dir: dir, ContinueOnError: true, // one run shows all that differs
		Setup: func(e *testscript.Env) error {
			tb := e.T().(testing.TB)
			w := Start(tb, binary, e.WorkDir)
			e.Defer(func() { seen(w.end()) })
			e.Values[worldKey{}] = w
			for user, key := range w.Keys {
				e.Setenv("KEY_"+user, key)
			}
			e.Setenv("PROVIDER", w.Provider.BaseURL())
			e.Setenv("REDIS", w.Redis.Addr)
			e.Setenv("TOMORROW", time.Now().AddDate(0, 0, 1).UTC().Format(time.RFC3339))
			e.Setenv("XDG_CONFIG_HOME", e.WorkDir)
			w.tellAddress(e.Setenv)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"let": let, "until": until, "exits": exits,
			"llmguard": command(cli), "api": command(api), "refused": command(refused),
			"call": command(call), "job": command(job), "v1": command(callers),
			"page": command(page), "press": command(press), "signout": command(signOut), "provider": command(provider),
			"worker": command(worker), "restart": command(restart), "hooks": command(hooks),
		},
	})
}

type worldKey struct{}

// tellAddress sets the variables that the CLI reads.
func (w *World) tellAddress(set func(key, value string)) {
	set("LLMGUARD_ADMIN_URL", w.Proxy.Admin)
	set("LLMGUARD_ADMIN_KEY", w.Keys["ops"])
	set("URL", w.Proxy.URL)
	if w.Worker != nil {
		set("WORKER_URL", w.Worker.Admin)
	}
}

// run is one command of a script. It returns what it prints, and why it failed.
type run func(ts *testscript.TestScript, w *World, args []string) (out string, err error)

// runs are the commands that until repeats.
var runs = map[string]run{"llmguard": cli, "api": api, "call": call, "job": job, "v1": callers, "page": page}

// command makes a command, which fails unless it was to.
func command(f run) func(ts *testscript.TestScript, neg bool, args []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		out, err := f(ts, worldOf(ts), args)
		if out != "" {
			fmt.Fprint(ts.Stdout(), out)
		}
		if err != nil && !isExit(err) {
			fmt.Fprintln(ts.Stderr(), err)
		}
		switch {
		case neg && err == nil:
			ts.Fatalf("it succeeded, but was to fail")
		case !neg && err != nil:
			ts.Fatalf("%v", err)
		}
	}
}

func worldOf(ts *testscript.TestScript) *World { return ts.Value(worldKey{}).(*World) }

func isExit(err error) bool { return errors.As(err, new(*exec.ExitError)) }

// cli leaves its output to testscript.
func cli(ts *testscript.TestScript, w *World, args []string) (string, error) {
	return "", ts.Exec(w.binary, args...)
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != "llmguard" {
		ts.Fatalf("usage: exits CODE llmguard ARGS...")
	}
	err := ts.Exec(worldOf(ts).binary, args[2:]...)
	code := 0
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// patience is how long until repeats a command.
const patience = time.Minute

func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || runs[args[1]] == nil {
		ts.Fatalf("usage: until REGEXP COMMAND...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var out string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		out, err = runs[args[1]](ts, worldOf(ts), args[2:])
		if args[1] == "llmguard" {
			out = ts.ReadFile("stdout")
		}
		if want.MatchString(out) {
			if args[1] != "llmguard" {
				fmt.Fprint(ts.Stdout(), out)
			}
			return
		}
	}
	ts.Fatalf("no %s within %s: %v\n%s", args[0], patience, err, out)
}

func let(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: let NAME REGEXP")
	}
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	m := want.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("no group of %s in the output before", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// request sends a request and returns the status and the body, with a line for each member if it is JSON.
func request(method, url, key, body string, header ...string) (string, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Timeout: redistest.Bound}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, text, "", "  ") == nil {
		text = pretty.Bytes()
	}
	out := fmt.Sprintf("%d\n%s\n", resp.StatusCode, text)
	if resp.StatusCode >= 400 {
		return out, fmt.Errorf("status %d", resp.StatusCode)
	}
	return out, nil
}

// administer sends a request to the administrators' API.
func administer(ts *testscript.TestScript, w *World, method, path, body string) (string, error) {
	return request(method, w.Proxy.Admin+"/admin/v1"+path, cmp.Or(ts.Getenv("LLMGUARD_ADMIN_KEY"), w.Keys["ops"]), body)
}

func api(ts *testscript.TestScript, w *World, args []string) (string, error) {
	if len(args) < 2 || len(args) > 4 {
		ts.Fatalf("usage: api METHOD PATH [JSON [MEMBERS]]")
	}
	args = append(args, "", "")
	out, err := administer(ts, w, args[0], args[1], args[2])
	if err == nil && args[3] != "" {
		_, body, _ := strings.Cut(out, "\n")
		err = hasMembers(body, args[3])
	}
	return out, err
}

// hasMembers checks that a JSON text has at least the members of another. null stands for none, and the elements of a
// list may be anywhere in the list.
func hasMembers(text, want string) error {
	var got, wanted any
	err := json.Unmarshal([]byte(want), &wanted)
	if err != nil {
		return fmt.Errorf("%s: %w", want, err)
	}
	err = json.Unmarshal([]byte(text), &got)
	if err == nil && !contains(got, wanted) {
		err = fmt.Errorf("the answer lacks some of %s", want)
	}
	return err
}

func contains(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		for name, value := range want {
			ok = ok && contains(object[name], value)
		}
		return ok
	case []any:
		list, ok := got.([]any)
		for _, one := range want {
			ok = ok && slices.ContainsFunc(list, func(other any) bool { return contains(other, one) })
		}
		return ok && (len(want) > 0 || len(list) == 0)
	}
	return got == want
}

func refused(ts *testscript.TestScript, w *World, args []string) (string, error) {
	if len(args) < 5 || len(args) > 6 {
		ts.Fatalf("usage: refused STATUS CODE PARAM METHOD PATH [JSON]")
	}
	out, err := administer(ts, w, args[3], args[4], strings.Join(args[5:], ""))
	if err == nil {
		return out, errors.New("it was done")
	}
	status, body, _ := strings.Cut(out, "\n")
	err = hasMembers(body, fmt.Sprintf(`{"error":{"code":%q,"param":%q}}`, args[1], args[2]))
	if args[2] == "-" {
		err = hasMembers(body, fmt.Sprintf(`{"error":{"code":%q,"param":null}}`, args[1]))
	}
	if status != args[0] {
		err = fmt.Errorf("status %s", status)
	}
	return out, err
}

// keyOf returns the key of a user, from the configuration or as a script has set it.
func keyOf(ts *testscript.TestScript, user string) string {
	key := ts.Getenv("KEY_" + user)
	if key == "" {
		ts.Fatalf("no key of %s: set KEY_%s", user, user)
	}
	return key
}

func completion(args []string) string {
	args = append(args, "", "")
	body, _ := json.Marshal(map[string]any{
		"model": cmp.Or(args[1], "gpt-4o"), "max_tokens": 50,
		"messages": []any{map[string]any{"role": "user", "content": cmp.Or(args[2], "Say hello")}},
	})
	return string(body)
}

func call(ts *testscript.TestScript, w *World, args []string) (string, error) {
	if len(args) < 1 || len(args) > 3 {
		ts.Fatalf("usage: call USER [MODEL] [TEXT]")
	}
	return request("POST", w.Proxy.URL+"/chat/completions", keyOf(ts, args[0]), completion(args))
}

func job(ts *testscript.TestScript, w *World, args []string) (string, error) {
	if len(args) < 1 || len(args) > 3 {
		ts.Fatalf("usage: job USER [MODEL] [TEXT]")
	}
	return request("POST", w.Proxy.URL+"/chat/completions", keyOf(ts, args[0]), completion(args), "Prefer",
		"respond-async")
}

func callers(ts *testscript.TestScript, w *World, args []string) (string, error) {
	if len(args) < 3 {
		ts.Fatalf("usage: v1 USER METHOD PATH [JSON]")
	}
	return request(args[1], w.Proxy.URL+args[2], keyOf(ts, args[0]), strings.Join(args[3:], ""))
}

func page(ts *testscript.TestScript, w *World, args []string) (string, error) {
	if len(args) != 1 {
		ts.Fatalf("usage: page PATH")
	}
	b, err := w.signIn()
	if err != nil {
		return "", err
	}
	text, err := b.page(args[0])
	return Text(text), err
}

func press(ts *testscript.TestScript, w *World, args []string) (string, error) {
	form := url.Values{}
	for _, arg := range args[min(1, len(args)):] {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			ts.Fatalf("usage: press ACTION [FIELD=VALUE...]")
		}
		form.Set(name, value)
	}
	b, err := w.signIn()
	if err != nil {
		return "", err
	}
	asked, after, err := b.press(args[0], form)
	return asked + after, err
}

func signOut(_ *testscript.TestScript, w *World, _ []string) (string, error) { return "", w.signOut() }

func provider(ts *testscript.TestScript, w *World, args []string) (string, error) {
	b, err := fakeprovider.ParseDirectives(strings.Join(args, " "))
	if err != nil {
		ts.Fatalf("%v", err)
	}
	w.Provider.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return b })
	return "", nil
}

func hooks(ts *testscript.TestScript, w *World, args []string) (string, error) {
	status, err := strconv.Atoi(strings.Join(args, " "))
	w.status.Store(int32(status))
	return "", err
}

func worker(ts *testscript.TestScript, w *World, _ []string) (string, error) {
	w.StartWorker()
	w.tellAddress(ts.Setenv)
	return "", nil
}

func restart(ts *testscript.TestScript, w *World, _ []string) (string, error) {
	w.Restart()
	w.tellAddress(ts.Setenv)
	return "", nil
}
