package admin

import (
	"net/http"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants/orgdata"
)

// handler serves one route and returns the response.
type handler func(c *call) (any, error)

// known makes a handler of one for an org that exists.
func (s *Server) known(serve handler) handler {
	return func(c *call) (any, error) {
		if err := s.orgs.dir.known(c.r.PathValue("org")); err != nil {
			return nil, err
		}
		return serve(c)
	}
}

// withLedger makes a handler of one for an org that exists, or that left a ledger when it was deleted.
func (s *Server) withLedger(serve handler) handler {
	return func(c *call) (any, error) {
		if _, err := s.orgs.dir.ledgerOrg(c.r.Context(), c.r.PathValue("org")); err != nil {
			return nil, err
		}
		return serve(c)
	}
}

var refusalPeriod = []parameter{
	{name: "from", text: "Hours since this time (RFC 3339); default: a day ago", kind: Period, value: "24h"},
	{name: "to", text: "Before this time (RFC 3339); default: now", kind: Period},
}

// refusalFilter selects refused calls.
var refusalFilter = []parameter{
	orgsParameter,
	{name: "user", text: "Only this user's", help: "only this user"},
	{name: "key", text: "Only this key's", help: "only this key"},
	{name: "cause", text: "Only those with this cause, such as limit:daily, or with one of these kinds of causes: " +
		strings.Join(budget.CauseKinds(), ", "), help: "only this cause, such as limit:daily, or kind, such as brake"},
	filterParameter,
}

var reasonParameter = parameter{name: "reason", text: "Reason, for the audit"}

func (s *Server) table() []Operation {
	return slices.Concat(s.orgRoutes(), s.limitRoutes(), s.workRoutes(), s.spendingRoutes(), s.requestRoutes(),
		s.financeRoutes(), s.systemRoutes())
}

func (s *Server) orgRoutes() []Operation {
	return []Operation{
		{
			Name: "listOrgs", Method: http.MethodGet, Path: "/orgs", Summary: "List orgs", Answer: page[Org]{},
			Query: []parameter{{name: "deleted", text: "true: also deleted orgs that have a ledger"}}, serve: s.orgs.listOrgs,
			Commands: []Command{{Use: "orgs list", Example: "orgs list", Hide: []string{"deleted"}}},
		},
		{
			Name: "createOrg", Method: http.MethodPost, Audit: "org.create", Path: "/orgs", Summary: "Create an org",
			Writes: true, Body: newOrg{},
			Answer: Org{}, Status: 201, serve: s.orgs.createOrg,
			Commands: []Command{{Use: "orgs create ORG", Example: "orgs create acme --name 'Acme Inc'"}},
			NoPage:   "an org is declared in a file, or created with its limits by the CLI",
		},
		{
			Name: "getOrg", Method: http.MethodGet, Path: "/orgs/{org}", Summary: "Show an org", Answer: Org{},
			serve:    s.orgs.getOrg,
			Commands: []Command{{Use: "orgs get ORG", Example: "orgs get acme"}},
		},
		{
			Name: "updateOrg", Method: http.MethodPatch, Audit: "org.update", Path: "/orgs/{org}",
			Summary: "Change an org; null resets a field to the file's value or the default", Writes: true,
			Query: []parameter{reasonParameter}, Body: orgPatch{}, Answer: Org{}, serve: s.known(s.orgs.updateOrg),
			Commands: []Command{{
				Use: "orgs update ORG", Short: "Change an org",
				Example: "orgs update acme --weight 200\norgs update acme --unset weight\n" +
					"orgs update acme --cache-max-age 1h --cache-cost 25%",
			}, {
				Use: "orgs disable ORG", Short: "Disable an org (all its keys get 401)", Example: "orgs disable acme",
				Fixed: map[string]any{"disabled": true}, Only: []string{}, Done: "org {id} is disabled",
			}, {
				Use: "orgs enable ORG", Short: "Enable a disabled org", Example: "orgs enable acme",
				Fixed: map[string]any{"disabled": false}, Only: []string{}, Done: "org {id} is active",
			}},
			NoPage: "its settings are many: the CLI and apply change them",
		},
		{
			Name: "deleteOrg", Method: http.MethodDelete, Audit: "org.delete", Path: "/orgs/{org}",
			Summary: "Remove the runtime changes of an org; the file's values, its ledger and its jobs are kept", Writes: true,
			Query: []parameter{reasonParameter}, serve: s.orgs.deleteOrg,
			Commands: []Command{{
				Use: "orgs delete ORG", Short: "Delete an org that was created at runtime (its ledger and jobs are kept)",
				Example: "orgs delete acme --yes", Done: "deleted org {org} from Redis",
				Sure: "this permanently removes org {org}. Confirm with --yes, or disable it instead",
			}},
			NoPage: "rare, and best done where its data is exported: the CLI",
		},

		{
			Name: "listUsers", Method: http.MethodGet, Path: "/orgs/{org}/users", Summary: "List an org's users",
			Answer: page[User]{}, serve: s.users.listUsers,
			Commands: []Command{{Use: "users list", Short: "List users of an org", Example: "users list --org acme"}},
		},
		{
			Name: "createUser", Method: http.MethodPost, Audit: "user.create", Path: "/orgs/{org}/users",
			Summary: "Create a user", Writes: true,
			Body: newUser{}, Answer: User{}, Status: 201, serve: s.users.createUser,
			Pages: []Page{{
				Title: "Create a user", Text: "Creates a user in org %s. Its calls need a key.",
				Ask: []Ask{{Input: "id", Label: "Id", Hint: "a-z, 0-9, _ and -"}}, Done: "User {id} is created.",
			}},
			Commands: []Command{{Use: "users create USER", Example: "users create alice --org acme"}},
		},
		{
			Name: "getUser", Method: http.MethodGet, Path: "/orgs/{org}/users/{user}", Summary: "Show a user", Answer: User{},
			serve:    s.users.getUser,
			Commands: []Command{{Use: "users get USER", Example: "users get alice --org acme"}},
		},
		{
			Name: "updateUser", Method: http.MethodPatch, Audit: "user.update", Path: "/orgs/{org}/users/{user}",
			Summary: "Change a user", Writes: true,
			Query: []parameter{reasonParameter}, Body: userPatch{}, Answer: User{}, serve: s.users.updateUser,
			Commands: []Command{{Use: "users update USER", Example: "users update alice --org acme --weight 200"}, {
				Use: "users disable USER", Short: "Disable a user (all their keys get 401)",
				Example: "users disable alice --org acme",
				Fixed:   map[string]any{"disabled": true}, Only: []string{}, Done: "user {id} is disabled",
			}, {
				Use: "users enable USER", Short: "Enable a disabled user", Example: "users enable alice --org acme",
				Fixed: map[string]any{"disabled": false}, Only: []string{}, Done: "user {id} is active",
			}},
			Pages: []Page{{
				Name: "change-user", Title: "Change a user's group and plan",
				Text: "Changes user %s. Its limits change immediately; usage is kept.",
				Ask: []Ask{
					{Input: "group", Label: "Group", Hint: "empty: none", Optional: true},
					{Input: "plan", Label: "Plan", Hint: "empty: the org's", Optional: true},
				},
				Done: "User {id} is changed.",
			}, {
				Name: "disable-user", Title: "Disable a user", Fixed: map[string]any{"disabled": true}, Danger: true,
				Text: "Calls of %s get 401 until you enable the user. Running calls finish; waiting jobs fail when their turn comes.",
				Done: "User {id} is disabled.",
			}, {
				Name: "enable-user", Title: "Enable a user", Fixed: map[string]any{"disabled": false},
				Text: "Calls of %s run again.", Done: "User {id} is active.",
			}},
		},
		{
			Name: "deleteUser", Method: http.MethodDelete, Audit: "user.delete", Path: "/orgs/{org}/users/{user}",
			Summary: "Remove a user and its runtime keys", Writes: true, Query: []parameter{reasonParameter},
			serve: s.users.deleteUser,
			Pages: []Page{{
				Title: "Delete a user", Danger: true, Done: "User {user} is deleted.",
				Text: "Deletes %s, as far as it was created at runtime, with its keys and limits. The ledger is kept.",
			}},
			Commands: []Command{{
				Use:     "users delete USER",
				Short:   "Delete a user that was created at runtime, with keys and limits (the ledger is kept)",
				Example: "users delete alice --org acme --yes", Done: "deleted user {user} of org {org} from Redis",
				Sure: "this permanently removes user {user}. Confirm with --yes, or disable it instead",
			}},
		},

		{
			Name: "listKeys", Method: http.MethodGet, Path: "/orgs/{org}/keys",
			Summary: "List an org's API keys, without their secrets",
			Query:   []parameter{{name: "user", text: "Only this user's"}},
			Answer:  page[Key]{}, serve: s.keys.listKeys,
			Commands: []Command{{
				Use: "keys list", Short: "List the API keys of an org",
				Example: "keys list --org acme\nkeys list --org acme --user alice",
			}},
		},
		{
			Name: "createKey", Method: http.MethodPost, Audit: "key.create", Path: "/orgs/{org}/keys",
			Summary: "Create an API key; only this response contains the key itself", Writes: true, Body: newKey{},
			Answer: NewKey{}, Status: 201, serve: s.keys.createKey,
			Commands: []Command{{
				Use: "keys create [KEY]", Short: "Create an API key for a user and show it once",
				Example: "keys create --org acme --user alice\n" +
					"keys create ci --org acme --user bot --scopes calls --concurrency 4 --expires 90d",
			}},
			Pages: []Page{{
				Title: "Create a key", Text: "Creates an API key for %s. The key is shown once.",
				Ask:  []Ask{{Input: "name", Label: "Name", Hint: "where it will be used", Optional: true}},
				Done: "Key {id} created. Copy it now; it is not shown again.", Secret: "secret",
			}},
		},
		{
			Name: "getKey", Method: http.MethodGet, Path: "/orgs/{org}/keys/{key}", Summary: "Show an API key", Answer: Key{},
			serve:    s.keys.getKey,
			Commands: []Command{{Use: "keys get KEY", Example: "keys get alice-1 --org acme"}},
		},
		{
			Name: "updateKey", Method: http.MethodPatch, Audit: "key.update", Path: "/orgs/{org}/keys/{key}",
			Summary: "Change an API key; cancel_jobs cancels the jobs of a disabled key", Writes: true,
			Query: []parameter{reasonParameter}, Body: keyChange{}, Answer: Key{}, serve: s.keys.updateKey,
			Commands: []Command{{
				Use: "keys update KEY", Short: "Change an API key", Example: "keys update alice-1 --org acme --concurrency 4",
				Hide: []string{"cancel_jobs"},
			}, {
				Use: "keys disable KEY", Short: "Disable a key (requests with it get 401)",
				Example: "keys disable alice-1 --org acme",
				Fixed:   map[string]any{"disabled": true}, Only: []string{"cancel_jobs"}, Done: "key {id} is disabled",
			}, {
				Use: "keys enable KEY", Short: "Enable a disabled key", Example: "keys enable alice-1 --org acme",
				Fixed: map[string]any{"disabled": false}, Only: []string{}, Done: "key {id} is active",
			}},
			Pages: []Page{
				{
					Name: "disable-key", Title: "Disable a key", Fixed: map[string]any{"disabled": true}, Danger: true,
					Text: "Calls with %s get 401, within seconds, until you enable it again.",
					Ask: []Ask{{
						Input: "cancel_jobs", Label: "Unfinished jobs of the key", Choices: []string{"keep", "cancel"},
					}},
					Done: "Key {key} is disabled.",
				},
				{
					Name: "enable-key", Title: "Enable a key", Text: "Calls with %s are accepted again.",
					Fixed: map[string]any{"disabled": false}, Done: "Key {key} works again.",
				},
			},
		},
		{
			Name: "rotateKey", Method: http.MethodPost, Audit: "key.rotate", Path: "/orgs/{org}/keys/{key}/rotate",
			Summary: "Create a new key with the same id; the old one works until the overlap ends", Writes: true,
			Body: rotation{}, Answer: NewKey{}, serve: s.keys.rotateKey,
			Commands: []Command{{
				Use: "keys rotate KEY", Short: "Replace a key; the old one keeps working for a while",
				Example: "keys rotate alice-1 --org acme --overlap 7d\nkeys rotate alice-1 --org acme --overlap 0s --reason leaked",
			}},
			Pages: []Page{{
				Title: "Rotate a key",
				Text: "Replaces key %s. The new key is shown once; the old one and its child keys work until the overlap " +
					"ends.",
				Ask: []Ask{
					{Input: "overlap", Label: "Overlap", Hint: "such as 24h or 7d; 0s ends the old key now", Value: "24h"},
					{Input: "keep_children", Label: "Keep child keys", Hint: "after the overlap", Choices: []string{"no", "yes"}},
				},
				Done: "Key {key} rotated. Copy the new key now; it is not shown again.", Secret: "secret",
			}},
		},
		{
			Name: "deleteKey", Method: http.MethodDelete, Audit: "key.delete", Path: "/orgs/{org}/keys/{key}",
			Summary: "Remove an API key", Writes: true,
			Query: []parameter{reasonParameter}, serve: s.keys.deleteKey,
			Pages: []Page{{
				Title: "Delete a key", Text: "Deletes key %s, as far as it was created at runtime. Calls with it get 401.",
				Danger: true, Done: "Key {key} is deleted.",
			}},
			Commands: []Command{{
				Use: "keys delete KEY", Short: "Delete an API key that was created at runtime",
				Example: "keys delete alice-1 --org acme --yes", Done: "deleted key {key} of org {org} from Redis",
				Sure: "this permanently removes key {key}. Confirm with --yes, or disable it instead",
			}},
		},

		{
			Name: "listRuns", Method: http.MethodGet, Path: "/orgs/{org}/runs",
			Summary: "List the open runs of an org, with those that ended within the last hour",
			Query:   []parameter{{name: "key", text: "Only those that this key gave a budget to"}},
			Answer:  page[guard.RunView]{},
			serve:   s.runs.listRuns,
			Commands: []Command{{
				Use: "runs list", Short: "List open runs, and those that ended within the last hour", Callers: "GET /keys/children",
				Example: "runs list\nruns list --org acme --parent alice-1", Flags: map[string]string{"key": "parent"},
				Help: map[string]string{"key": "with --org: only those that this key gave a budget to"},
			}},
		},
		{
			Name: "createRun", Method: http.MethodPost, Audit: "run.create", Path: "/orgs/{org}/keys/{key}/children",
			Summary: "Give a part of a key's budget to a run; only this response contains the run's own key", Writes: true,
			Body: newRun{}, Answer: guard.RunView{}, Status: 201, serve: s.runs.createRun,
			NoPage: "a run is created by the program that uses its key",
			Commands: []Command{{
				Use: "keys child", Short: "Give a part of a key's budget to a run, with a separate key",
				Long: "Prints a key whose calls end with run_budget_reached when the amount is used up. It has the user, limits, models and labels\n" +
					"of the key that gives the budget.",
				Example: "keys child --amount '$5' --expires 2h --models 'gpt-4o*' --label run=abc\n" +
					"keys child --org acme --parent alice-1 --amount '$5'",
				Callers: "POST /keys/children", Flags: map[string]string{"key": "parent"},
				Help: map[string]string{"key": "with --org: the key that gives the budget"},
			}},
		},
		{
			Name: "getRun", Method: http.MethodGet, Path: "/orgs/{org}/runs/{run}", Summary: "Show a run",
			Answer: guard.RunView{}, serve: s.runs.getRun,
			Commands: []Command{{
				Use: "runs show RUN", Short: "Show a run: what it spent and what is left", Callers: "GET /keys/children/{run}",
				Example: "runs show run_k3v5hd7q2mzx4abc\nruns show run_k3v5hd7q2mzx4abc --org acme",
			}},
		},
		{
			Name: "topUpRun", Method: http.MethodPost, Audit: "run.top_up", Path: "/orgs/{org}/runs/{run}/top-up",
			Summary: "Add to the budget of a run; its calls continue", Writes: true, Body: topUp{}, Answer: guard.RunView{},
			serve: s.runs.topUpRun,
			Commands: []Command{{
				Use: "runs top-up RUN", Short: "Add to the budget of a run, so that its calls continue",
				Callers: "POST /keys/children/{run}",
				Example: "runs top-up run_k3v5hd7q2mzx4abc --add '$5'\n" +
					"runs top-up run_k3v5hd7q2mzx4abc --add '$5' --org acme --reason 'release'",
			}},
			Pages: []Page{{
				Title: "Add to the budget of a run", Text: "Adds to the amount of run %s. Its calls continue.",
				Ask: []Ask{{Input: "add_amount", Label: "Add", Hint: "such as $5"}}, Done: "The run {id} may spend ${amount}.",
			}},
		},
		{
			Name: "endRun", Method: http.MethodPost, Audit: "run.end", Path: "/orgs/{org}/runs/{run}/end",
			Summary: "End a run: further calls of it are refused", Writes: true, Query: []parameter{reasonParameter},
			Answer: guard.RunView{}, serve: s.runs.endRun,
			Commands: []Command{{
				Use: "runs end RUN", Short: "End a run, so that its further calls are refused",
				Callers: "DELETE /keys/children/{run}",
				Example: "runs end run_k3v5hd7q2mzx4abc\nruns end run_k3v5hd7q2mzx4abc --org acme",
			}},
			Pages: []Page{{
				Title: "End a run", Text: "Ends run %s. Its further calls get 402; calls in flight finish.", Danger: true,
				Done: "The run {id} is {status}.",
			}},
		},

		{
			Name: "listCredentials", Method: http.MethodGet, Path: "/orgs/{org}/credentials",
			Summary: "List the org's own credentials for providers, without the secrets", Answer: page[Credential]{},
			serve: s.known(s.credentials.listCredentials),
			Commands: []Command{{
				Use: "orgs credentials list", Short: "List an org's own credentials", Example: "orgs credentials list --org acme",
			}},
		},
		{
			Name: "setCredential", Method: http.MethodPut, Audit: "credential.set", Path: "/orgs/{org}/credentials/{provider}",
			Summary: "Set the org's own credential for a provider; it cannot be read back", Writes: true,
			Query: []parameter{reasonParameter}, Body: newCredential{}, Answer: Credential{},
			serve:  s.known(s.credentials.setCredential),
			NoPage: "a secret is not typed into a page",
			Commands: []Command{{
				Use: "orgs credentials set PROVIDER", Short: "Set the org's provider credential, read from standard input",
				Example: "orgs credentials set openai --org acme < acme-openai-key.txt",
			}},
		},
		{
			Name: "deleteCredential", Method: http.MethodDelete, Audit: "credential.delete",
			Path:    "/orgs/{org}/credentials/{provider}",
			Summary: "Remove the org's own credential; its calls use the deployment's account again", Writes: true,
			Query: []parameter{reasonParameter}, serve: s.known(s.credentials.deleteCredential),
			NoPage: "as setCredential",
			Commands: []Command{{
				Use: "orgs credentials delete PROVIDER", Example: "orgs credentials delete openai --org acme --yes",
				Short: "Remove an org's own credential (its calls use the deployment's account again)",
				Sure:  "this permanently removes the {provider} credential of org {org}. Confirm with --yes",
				Done:  "removed the {provider} credential of org {org}",
			}},
		},

		{
			Name: "getDeclaration", Method: http.MethodGet, Path: "/orgs/{org}/declaration",
			Summary: "Show an org, with its users, keys and limits in force, in the form that apply reads",
			Answer:  Declaration{}, serve: s.declarations.getDeclaration,
			Commands: []Command{{Use: "config export", Own: true}},
		},
		{
			Name: "getRecords", Method: http.MethodGet, Path: "/orgs/{org}/records",
			Summary: "Show the runtime changes of an org, without keys, their hashes and credentials",
			Answer:  map[string]any{}, serve: s.declarations.getRecords,
			Without: "orgs export has it; simulate reads it",
		},
		{
			Name: "exportOrg", Method: http.MethodGet, Path: "/orgs/{org}/export",
			Summary: "Stream all stored data of an org as JSON lines, without secrets, bodies and file contents; the last " +
				"line has type end", Lines: true, Answer: orgdata.ExportLine{}, serve: s.known(s.orgData.exportOrg),
			Commands: []Command{{
				Use: "orgs export ORG", Short: "Export all data of an org as JSON lines",
				Long: "Every line is {\"type\": ..., \"data\": ...}. The first is a header with the schema version. Then follow the org as it is in\n" +
					"force, its users, keys, limits, overrides and credentials (without secrets or hashes), its ledger, daily sums and\n" +
					"corrections, its jobs, batches and files (without contents), and its audit entries. The last line has type \"end\" and the\n" +
					"number of lines; without it the export is incomplete.",
				Example: "orgs export acme --out acme.jsonl\norgs export acme | jq -c 'select(.type == \"key\").data'",
			}},
		},
		{
			Name: "purgeOrg", Method: http.MethodPost, Audit: "org.purge", Path: "/orgs/{org}/purge",
			Summary: "Remove all stored data of a disabled org that is not in the file; with dry_run, only count it",
			Writes:  true, Body: purge{}, Answer: Purged{}, serve: s.orgData.purgeOrg,
			NoPage: "it shows a plan first: the CLI",
			Commands: []Command{{
				Use: "orgs purge ORG", Short: "Delete all data of a disabled org",
				Long: "Deletes the org with its users, keys, limits, usage, overrides, credentials, jobs, batches, files and stored responses.\n" +
					"The ledger, daily sums and corrections are kept unless you use --ledger; audit entries are always kept. The org must be\n" +
					"disabled, absent from the configuration file, and have no running calls, jobs or batches.\n\n" +
					"Without --yes the command only shows what it would delete. If it is interrupted, run it again to finish. To keep a copy,\n" +
					"run `orgs export` first.",
				Example: "orgs disable acme\norgs export acme --out acme.jsonl\norgs purge acme --yes --reason 'contract ended'",
			}},
		},
		{
			Name: "applyOrg", Method: http.MethodPost, Path: "/orgs/{org}/apply",
			Summary: "Make an org match its declaration; with dry_run, only list the changes", Body: application{},
			Answer: Plan{}, serve: s.declarations.apply,
			Commands: []Command{{Use: "apply", Own: true}},
		},
	}
}
