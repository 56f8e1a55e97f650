package admin

import (
	"net/http"

	"github.com/llmguard/llmguard/internal/tenants"
)

func (s *Server) systemRoutes() []Operation {
	return []Operation{
		{
			Name: "listStops", Method: http.MethodGet, Path: "/stops", Summary: "List what spending is stopped",
			Answer: page[Stop]{}, serve: s.stops.listStops,
			Commands: []Command{{
				Use: "stops", Short: "List what spending is stopped, by whom and why", Example: "stops",
				None: "no spending is stopped",
			}},
		},
		{
			Name: "stopSpending", Method: http.MethodPut, Audit: "spending.stop", Path: "/orgs/{org}/stop",
			Summary: "Stop all spending of an org: new and waiting calls get 403, jobs and batches are kept, running calls " +
				"finish. Org all: of everybody", Writes: true, Query: []parameter{reasonParameter}, Body: stopOrder{},
			Answer: Stop{}, serve: s.stops.stop,
			Pages: []Page{{
				Title: "Stop all spending", Danger: true,
				Text: "New calls of org %s get 403 until you resume it. Running calls finish; jobs and batches are kept.",
				Done: "The spending of {org} is stopped.",
			}},
			Commands: []Command{{
				Use: "stop", Short: "Stop all spending, of one org or of everybody",
				Long: "In every process, within a second: new calls and connected callers that wait get 403 spending_stopped, workers start no\n" +
					"job, and no batch line is sent. Jobs and batches are kept, and run after `llmguard resume`; their deadlines continue.\n" +
					"Calls that already run finish. The stop is stored in Redis, so restarts keep it. It does not ask for confirmation.",
				Example: "stop --reason 'key leaked'\nstop --org acme --reason 'runaway agent'",
				Help:    map[string]string{"org": "only this org"}, All: true,
			}},
		},
		{
			Name: "resumeSpending", Method: http.MethodDelete, Audit: "spending.resume", Path: "/orgs/{org}/stop",
			Summary: "Resume the spending of an org. Org all: the stop of everybody; orgs stopped themselves stay stopped",
			Writes:  true, Query: []parameter{reasonParameter}, serve: s.stops.resume,
			Pages: []Page{{
				Title: "Resume spending", Text: "Calls, jobs and batches of org %s run again.",
				Done: "The spending of {org} is resumed.",
			}},
			Commands: []Command{{
				Use: "resume", Short: "Resume spending that was stopped",
				Long: "Without --org it ends the stop of everybody; orgs that were stopped by name stay stopped. Waiting jobs and batches start\n" +
					"within two seconds.",
				Example: "resume --reason 'key revoked'\nresume --org acme",
				Help:    map[string]string{"org": "only this org"}, All: true,
			}},
		},

		{
			Name: "listBrakes", Method: http.MethodGet, Path: "/brakes",
			Summary: "List brakes that fired or were released for a subject, with what they saw",
			Query:   []parameter{orgsParameter}, Answer: page[FiredBrake]{}, serve: s.brakes.listBrakes,
			Commands: []Command{{
				Use: "brakes list", Short: "List brakes that fired or were released, with what they saw",
				Example: "brakes list\nbrakes list --org acme -o json | jq -r '.[] | select(.action == \"stop\") | .subject'",
				None:    "no brake has fired",
			}},
		},
		{
			Name: "releaseBrake", Method: http.MethodPost, Audit: "brake.release", Path: "/orgs/{org}/brakes/{brake}/release",
			Summary: "Release a brake for a subject: its calls run again, and the brake does not fire for it for a while",
			Writes:  true, Body: brakeRelease{}, Answer: FiredBrake{}, serve: s.brakes.release,
			Pages: []Page{{
				Title: "Release a brake", Text: "Calls of %s run again. The brake does not fire for them for a time.",
				Ask: []Ask{{
					Input: "for", Label: "Exempt for", Hint: "such as 12h; empty: one window of the brake", Optional: true,
				}},
				Done: "Brake {brake} is released for {subject}.",
			}},
			Commands: []Command{{
				Use: "brakes release NAME=VALUE...", Short: "Release a brake for a subject: its calls run again",
				Long: "The brake does not fire for the subject again for one window of the brake, or for --for. Its waiting\n" +
					"jobs run within a minute.",
				Example: "brakes release --org acme --brake wild-run user=carol run=abc --reason 'long migration'\n" +
					"brakes release --org acme --brake endless run-budget=run_k3v5hd7q2mzx4abc --for 12h",
				Help: map[string]string{"for": "how long the brake does not fire again, such as 12h; default: its window"},
			}},
		},
		{
			Name: "stopByBrake", Method: http.MethodPost, Audit: "brake.stop", Path: "/orgs/{org}/brakes/{brake}/stop",
			Summary: "Stop the calls of a subject by hand, as if the brake had fired", Writes: true, Body: brakeRelease{},
			Answer: FiredBrake{}, serve: s.brakes.stop,
			NoPage: "the subject is free text: the CLI",
			Commands: []Command{{
				Use: "brakes stop NAME=VALUE...", Short: "Stop the calls of a subject by hand, as if a brake had fired",
				Long:    "New calls of the subject get 403 brake_stopped until `llmguard brakes release`, or until --for has passed.",
				Example: "brakes stop --org acme --brake wild-run run=abc --for 1h --reason 'being looked at'",
				Help:    map[string]string{"for": "how long the stop lasts, such as 1h; default: until it is released"},
			}},
		},

		{
			Name: "listAdmins", Method: http.MethodGet, Path: "/admins", Summary: "List administrators",
			Answer: page[Admin]{}, serve: s.admins.listAdmins,
			Commands: []Command{{Use: "admins list", Example: "admins list -c llmguard.yaml"}},
		},
		{
			Name: "createAdmin", Method: http.MethodPost, Audit: "admin.create", Path: "/admins",
			Summary: "Create an administrator's key; not over the network", Writes: true, Local: true, Body: newAdmin{},
			Answer: NewAdmin{}, Status: 201, serve: s.admins.createAdmin,
			NoPage: "not over the network",
			Commands: []Command{{
				Use: "admins create ADMIN", Short: "Create an administrator's key and show it once",
				Example: "admins create ops -c llmguard.yaml\nadmins create dashboard --read-only --expires 90d",
			}},
		},
		{
			Name: "updateAdmin", Method: http.MethodPatch, Audit: "admin.update", Path: "/admins/{admin}",
			Summary: "Change an administrator; not over the network", Writes: true, Local: true,
			Query: []parameter{reasonParameter}, Body: adminPatch{}, Answer: Admin{}, serve: s.admins.updateAdmin,
			NoPage: "not over the network",
			Commands: []Command{
				{
					Use: "admins update ADMIN", Short: "Change an administrator's name, rights or expiry", Hide: []string{"disabled"},
					Example: "admins update dashboard --expires 90d\nadmins update ops --read-only=false",
				},
				{
					Use: "admins disable ADMIN", Short: "Disable an administrator's key", Example: "admins disable dashboard",
					Fixed: map[string]any{"disabled": true}, Only: []string{}, Done: "administrator {admin} is {status}",
				},
				{
					Use: "admins enable ADMIN", Short: "Enable an administrator's key", Example: "admins enable dashboard",
					Fixed: map[string]any{"disabled": false}, Only: []string{}, Done: "administrator {admin} is {status}",
				},
			},
		},
		{
			Name: "deleteAdmin", Method: http.MethodDelete, Audit: "admin.delete", Path: "/admins/{admin}",
			Summary: "Remove an administrator; not over the network", Writes: true, Local: true,
			Query: []parameter{reasonParameter}, serve: s.admins.deleteAdmin,
			NoPage: "not over the network",
			Commands: []Command{{
				Use: "admins delete ADMIN", Short: "Delete an administrator's key", Example: "admins delete dashboard --yes",
				Sure: "this permanently removes administrator {admin}. Confirm with --yes, or disable it instead",
				Done: "removed administrator {admin}",
			}},
		},

		{
			Name: "reloadConfig", Method: http.MethodPost, Audit: "config.reload", Path: "/config/reload",
			Summary: "Reload the configuration file of this process, as SIGHUP does", Writes: true, Answer: Reloaded{},
			serve:  s.system.reload,
			NoPage: "one process of several answers the console",
			Commands: []Command{{
				Use: "config reload", Short: "Make a running llmguard reload its configuration file", Example: "config reload\nconfig reload --all",
				Long: "Reloads one process, as SIGHUP does; with --all, every proxy and worker, with one result each. Each process reads its own\n" +
					"copy of the file. If that is invalid, the process keeps its previous configuration.",
			}},
		},
		{
			Name: "reloadAll", Method: http.MethodPost, Audit: "config.reload", Path: "/config/reload/all",
			Summary: "Reload the configuration files of all processes, with one result or error each", Writes: true,
			Answer: page[tenants.ReloadedProcess]{}, serve: s.system.reloadAll,
			Without: "config reload --all calls it", NoPage: "a command shows the result of each process",
		},
		{
			Name: "signIn", Method: http.MethodPost, Audit: "admin.sign_in", Path: "/session",
			Summary: "Record a console sign-in with this key in the audit", Answer: Self{}, serve: s.admins.session,
			Without: "only the console signs in",
		},
		{
			Name: "signOut", Method: http.MethodDelete, Audit: "admin.sign_out", Path: "/session",
			Summary: "Record a console sign-out in the audit", Answer: Self{}, serve: s.admins.session,
			Without: "only the console signs out",
		},
		{
			Name: "getSelf", Method: http.MethodGet, Path: "/self",
			Summary: "Show whose key this is, and whether it is read-only", Answer: Self{}, serve: s.admins.self,
			Commands: []Command{{
				Use: "admins self", Short: "Show whose key the commands use, and whether it is read-only", Example: "admins self",
			}},
		},
		{
			Name: "listAudit", Method: http.MethodGet, Path: "/audit", Summary: "List changes, newest first",
			Query: auditParameters, Answer: auditPage{}, serve: s.audit.listAudit,
			Commands: []Command{{
				Use: "audit", Short: "List who changed what, when and why",
				Long: "Lists about the last 100,000 changes by administrators, newest first. For an archive, `-o jsonl` and `-o csv` write one\n" +
					"line per change, with the values before and after; --all lists everything. `llmguard usage audit` lists billing\n" +
					"corrections.",
				Example: "audit --org acme\naudit --action key.create --from 7d\naudit --all -o csv --from 2026-11 > audit.csv",
				Hide:    []string{"after", "limit"},
			}},
		},
		{
			Name: "openAPI", Method: http.MethodGet, Path: "/openapi.json", Summary: "This document", Answer: map[string]any{},
			serve:   s.system.document,
			Without: "it is for programs: GET /openapi.json",
		},
	}
}
