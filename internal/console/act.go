package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/admin"
)

// action is something an administrator can do. A page of its own describes it and asks for
// confirmation.
type action struct {
	title  string
	text   string   // what will happen; %s is the target
	target []string // form fields that identify the target
	inputs []input  // entered on the page
	danger bool
	do     func(*visit) (done, error)
}

// input is a field of the confirmation page.
type input struct {
	Name, Label, Hint, Value string
	Optional                 bool
	Choices                  []string // empty: free text
}

// done is the result of an action: a line, and a secret that is shown once.
type done struct{ Text, Secret string }

var reason = input{Name: "reason", Label: "Reason", Hint: "recorded in the audit", Optional: true}

var actions = map[string]action{
	"cancel-job": {
		title: "Cancel a job", text: "Cancels %s. A running job stops; its cost so far is charged.",
		target: []string{"org", "job"}, inputs: []input{reason}, danger: true, do: (*visit).cancelJob,
	},
	"replay-job": {
		title:  "Replay a dead letter",
		text:   "Queues the request of %s again, as a new job with a full set of attempts.",
		target: []string{"job"}, inputs: []input{reason}, do: (*visit).replayJob,
	},
	"pause-pool": {
		title: "Pause a pool", text: "No job of pool %s starts until you resume it. Running jobs and live calls continue.",
		target: []string{"pool"}, inputs: []input{reason}, danger: true, do: changePool("pause", "starts no more jobs"),
	},
	"resume-pool": {
		title: "End a pause", text: "Calls of pool %s continue now. If the provider refuses them again, they pause again.",
		target: []string{"pool"}, inputs: []input{reason}, do: changePool("resume", "continues"),
	},
	"cancel-batch": {
		title: "Cancel a batch", text: "No new lines of %s will start. Running lines finish; results so far are kept.",
		target: []string{"org", "user", "batch"}, inputs: []input{reason}, danger: true, do: (*visit).cancelBatch,
	},
	"create-key": {
		title: "Create a key", text: "Creates an API key for %s. The key is shown once.",
		target: []string{"org", "user"},
		inputs: []input{{Name: "name", Label: "Name", Hint: "where it will be used", Optional: true}, reason},
		do:     (*visit).createKey,
	},
	"disable-key": {
		title: "Disable a key", text: "Calls with %s get 401, within seconds, until you enable it again.",
		target: []string{"org", "key"}, danger: true, do: (*visit).disableKey,
		inputs: []input{{
			Name: "jobs", Label: "Unfinished jobs of the key", Value: keepJobs,
			Choices: []string{keepJobs, cancelJobs},
		}, reason},
	},
	"enable-key": {
		title: "Enable a key", text: "Calls with %s are accepted again.",
		target: []string{"org", "key"}, inputs: []input{reason}, do: (*visit).enableKey,
	},
	"raise-limit": {
		title:  "Temporarily change a limit",
		text:   "Changes the amount of limit %s for a time. It then returns to the previous amount. The usage is kept.",
		target: []string{"org", "user", "group", "limit"}, do: (*visit).raiseLimit,
		inputs: []input{
			{Name: "add", Label: "Add", Hint: "such as $200 or -$5; a number for limits that do not count cost"},
			{Name: "lasts", Label: "For", Value: "24 hours", Choices: []string{"1 hour", "8 hours", "24 hours", "7 days"}},
			{Name: "reason", Label: "Reason", Hint: "recorded in the audit"},
		},
	},
	"reset-limit": {
		title: "Reset a limit's usage", text: "Resets the usage of %s to zero. The ledger and in-flight calls are kept.",
		target: []string{"org", "user", "group", "key", "ip", "limit"}, danger: true, do: (*visit).resetLimit,
		inputs: []input{{Name: "reason", Label: "Reason", Hint: "recorded in the audit"}},
	},
	"enable-webhook": {
		title:  "Re-enable a webhook target",
		text:   "Sends events to target %s again. Replay missed events with llmguard webhooks replay.",
		target: []string{"org", "target"}, inputs: []input{reason}, do: (*visit).enableWebhook,
	},
	"end-override": {
		title: "End a temporary change", text: "Ends change %s now. The limit returns to its previous amount.",
		target: []string{"org", "override"}, inputs: []input{reason}, do: (*visit).endOverride,
	},
	"release-brake": {
		title: "Release a brake", text: "Calls of %s run again. The brake does not fire for them for a time.",
		target: []string{"org", "brake", "subject"}, do: (*visit).releaseBrake,
		inputs: []input{
			{Name: "for", Label: "Exempt for", Hint: "such as 12h; empty: one window of the brake", Optional: true}, reason,
		},
	},
	"approve-request": {
		title:  "Approve a limit request",
		text:   "Raises the limit of request %s until the end below. It then returns to the previous amount.",
		target: []string{"request"}, do: (*visit).approveRequest,
		inputs: []input{
			{Name: "amount", Label: "Add", Hint: "such as $20"},
			{Name: "until", Label: "Until", Hint: "UTC, such as 2026-12-01 18:00"},
			reason,
		},
	},
	"deny-request": {
		title: "Deny a limit request", text: "Denies request %s. The caller sees the reason.",
		target: []string{"request"}, danger: true, do: (*visit).denyRequest,
		inputs: []input{{Name: "reason", Label: "Reason", Hint: "recorded in the audit, shown to the caller"}},
	},
	"top-up-run": {
		title: "Add to the budget of a run", text: "Adds to the amount of run %s. Its calls continue.",
		target: []string{"org", "run"}, do: (*visit).topUpRun,
		inputs: []input{{Name: "add", Label: "Add", Hint: "such as $5"}, reason},
	},
	"end-run": {
		title: "End a run", text: "Ends run %s. Its further calls get 402; calls in flight finish.",
		target: []string{"org", "run"}, inputs: []input{reason}, danger: true, do: (*visit).endRun,
	},
	"rotate-key": {
		title: "Rotate a key",
		text: "Replaces key %s. The new key is shown once; the old one and its child keys work until the overlap " +
			"ends.",
		target: []string{"org", "key"},
		inputs: []input{
			{Name: "overlap", Label: "Overlap", Hint: "such as 24h or 7d; 0s ends the old key now", Value: "24h"},
			{Name: "keep_children", Label: "Keep child keys", Hint: "after the overlap", Choices: []string{"no", "yes"}},
			reason,
		}, do: (*visit).rotateKey,
	},
}

type confirmView struct {
	Name, Title, Text, Problem, Back string
	Danger                           bool
	Fields                           map[string]string
	Inputs                           []input
}

// act asks for confirmation of an action, or performs it.
func (c *Console) act(v *visit) error {
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, 64<<10)
	name := v.r.PathValue("action")
	a, ok := actions[name]
	if !ok {
		return errNotFound
	}
	if !v.genuine() {
		v.fail(http.StatusForbidden, "This form is invalid or has expired. Go back and try again.")
		return nil
	}
	view := v.confirmation(name, a)
	if v.r.PostFormValue("confirm") != "yes" {
		return v.show("confirm", a.title, view)
	}
	result, err := a.do(v)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		view.Problem = refused.text
		v.w.WriteHeader(refused.status)
		return v.show("confirm", a.title, view)
	case err != nil:
		return err
	}
	v.session.tell(result)
	http.Redirect(v.w, v.r, view.Back, http.StatusSeeOther)
	return nil
}

func (v *visit) confirmation(name string, a action) confirmView {
	fields := map[string]string{}
	var said []string
	for _, f := range a.target {
		fields[f] = v.r.PostFormValue(f)
		if fields[f] != "" {
			said = append(said, fields[f])
		}
	}
	view := confirmView{
		Name: name, Title: a.title, Text: fmt.Sprintf(a.text, strings.Join(said, "/")), Danger: a.danger, Fields: fields,
		Inputs: slices.Clone(a.inputs), Back: nextOf(v.r.PostFormValue("back")),
	}
	for i := range view.Inputs {
		if given, ok := v.r.PostForm[view.Inputs[i].Name]; ok { //nolint:forbidigo // the field, not http.PostForm
			view.Inputs[i].Value = given[0]
		}
	}
	return view
}

// refusal is an action that was not done, with the reason.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func (v *visit) field(name string) string { return v.r.PostFormValue(name) }

// work is the API's view of a job or a batch.
type work struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

func (v *visit) cancelJob() (done, error) {
	var now work
	path := "/orgs/" + url.PathEscape(v.field("org")) + "/jobs/" + url.PathEscape(v.field("job")) + "/cancel"
	err := v.change(http.MethodPost, path, v.order(), &now)
	return done{Text: fmt.Sprintf("Job %s is %s.", now.ID, now.Status)}, err
}

func (v *visit) replayJob() (done, error) {
	var made work
	err := v.change(http.MethodPost, "/jobs/"+url.PathEscape(v.field("job"))+"/replay", v.order(), &made)
	return done{Text: fmt.Sprintf("Queued again as %s.", made.ID)}, err
}

func (v *visit) cancelBatch() (done, error) {
	var now work
	path := "/orgs/" + url.PathEscape(v.field("org")) + "/users/" + url.PathEscape(v.field("user")) + "/batches/" +
		url.PathEscape(v.field("batch")) + "/cancel"
	err := v.change(http.MethodPost, path, v.order(), &now)
	return done{Text: fmt.Sprintf("Batch %s is being cancelled.", now.ID)}, err
}

// order returns the request body for an action on a job or a batch.
func (v *visit) order() map[string]any {
	body := map[string]any{}
	if why := v.field("reason"); why != "" {
		body["reason"] = why
	}
	return body
}

// change sends a change to the API.
func (v *visit) change(method, path string, body, out any) error {
	if status, text := v.ask(v.r.Context(), method, path, body, out); status >= 300 {
		return &refusal{status, problem(text, "Nothing was changed.")}
	}
	return nil
}

func (v *visit) keyPath(more string) string {
	path := "/orgs/" + url.PathEscape(v.field("org")) + "/keys"
	if key := v.field("key"); key != "" {
		path += "/" + url.PathEscape(key)
	}
	return path + more
}

func (v *visit) because() string {
	if why := v.field("reason"); why != "" {
		return "?" + url.Values{"reason": {why}}.Encode()
	}
	return ""
}

type newKey struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
}

func (v *visit) createKey() (done, error) {
	var made newKey
	body := map[string]any{"user": v.field("user")}
	if name := v.field("name"); name != "" {
		body["name"] = name
	}
	err := v.change(http.MethodPost, v.keyPath("")+v.because(), body, &made)
	return done{Text: "Key " + made.ID + " created. Copy it now; it is not shown again.", Secret: made.Secret}, err
}

// What to do with the jobs of a key that is disabled.
const keepJobs, cancelJobs = "keep", "cancel"

func (v *visit) disableKey() (done, error) {
	body := map[string]any{"disabled": true}
	if v.field("jobs") == cancelJobs {
		body["cancel_jobs"] = true
	}
	return v.setDisabled(body, "is disabled.")
}

func (v *visit) enableKey() (done, error) {
	return v.setDisabled(map[string]any{"disabled": false}, "works again.")
}

func (v *visit) setDisabled(body map[string]any, text string) (done, error) {
	err := v.change(http.MethodPatch, v.keyPath("")+v.because(), body, nil)
	return done{Text: "Key " + v.field("key") + " " + text}, err
}

func (v *visit) rotateKey() (done, error) {
	var made newKey
	body := map[string]any{
		"overlap": v.field("overlap"), "keep_children": v.field("keep_children") == "yes", "reason": v.field("reason"),
	}
	err := v.change(http.MethodPost, v.keyPath("/rotate"), body, &made)
	return done{
		Text:   "Key " + v.field("key") + " rotated. Copy the new key now; it is not shown again.",
		Secret: made.Secret,
	}, err
}

// lasting are the durations offered for changing a limit.
var lasting = map[string]time.Duration{
	"1 hour": time.Hour, "8 hours": 8 * time.Hour, "24 hours": 24 * time.Hour,
	"7 days": 7 * 24 * time.Hour,
}

func (v *visit) raiseLimit() (done, error) {
	d, ok := lasting[v.field("lasts")]
	if !ok {
		return done{}, &refusal{http.StatusBadRequest, "Choose a duration."}
	}
	until := v.o.Now().Add(d).UTC().Truncate(time.Second)
	body := map[string]any{"limit": v.field("limit"), "add": v.field("add"), "until": until, "reason": v.field("reason")}
	v.subject(body, "user", "group")
	err := v.change(http.MethodPost, "/orgs/"+url.PathEscape(v.field("org"))+"/overrides", body, nil)
	return done{Text: fmt.Sprintf("%s: %s until %s.", v.field("limit"), v.field("add"),
		until.Format("2006-01-02 15:04 UTC"))}, err
}

// subject adds to a body whose counter a limit's change is for.
func (v *visit) subject(body map[string]any, kinds ...string) {
	for _, whose := range kinds {
		if who := v.field(whose); who != "" {
			body[whose] = who
		}
	}
}

func (v *visit) resetLimit() (done, error) {
	body := map[string]any{"reason": v.field("reason")}
	v.subject(body, "user", "group", "key", "ip")
	path := "/orgs/" + url.PathEscape(v.field("org")) + "/limits/" + url.PathEscape(v.field("limit")) + "/reset"
	return done{Text: "The usage of " + v.field("limit") + " was reset."}, v.change(http.MethodPost, path, body, nil)
}

func (v *visit) enableWebhook() (done, error) {
	path := "/orgs/" + url.PathEscape(v.field("org")) + "/webhooks/" + url.PathEscape(v.field("target")) + "/enable"
	return done{Text: "The webhook target is enabled."}, v.change(http.MethodPost, path, v.order(), nil)
}

func (v *visit) endOverride() (done, error) {
	path := "/orgs/" + url.PathEscape(v.field("org")) + "/overrides/" + url.PathEscape(v.field("override"))
	return done{Text: "The temporary change has ended."}, v.change(http.MethodDelete, path+v.because(), nil, nil)
}

// overrides returns the current overrides of an org; if user is not empty, only those that
// affect the user.
func (v *visit) overrides(org, user string) []admin.Override {
	var list struct{ Data []admin.Override }
	if status, text := v.ask(v.r.Context(), http.MethodGet, "/orgs/"+url.PathEscape(org)+"/overrides", nil,
		&list); status != http.StatusOK {
		v.o.Log.Warn("console override read failed", "org", org, "problem", problem(text, ""))
	}
	return slices.DeleteFunc(list.Data, func(o admin.Override) bool {
		return !o.Active || user != "" && o.Only != "" && o.Only != user
	})
}

// tell keeps the result of an action for the next page.
func (one *session) tell(d done) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.told = &d
}

// hear returns the result of an action, once.
func (one *session) hear() *done {
	one.mu.Lock()
	defer one.mu.Unlock()
	d := one.told
	one.told = nil
	return d
}
