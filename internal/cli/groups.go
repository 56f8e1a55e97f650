package cli

// groups describe the commands that only have subcommands of the table.
var groups = map[string]struct{ short, long, example string }{
	"admins": {
		"Create and revoke administrator keys",
		"Administrator keys grant access to the admin API only. Create and change them on a machine that has the configuration file and\n" +
			"reaches its Redis: a leaked key cannot create others over the network. Only `admins list` also works on a running llmguard.",
		"admins create ops -c llmguard.yaml\nadmins create dashboard --read-only --expires 90d",
	},
	"batches": {
		"List, show and cancel batches of any org", "For operators. Callers use `llmguard batch` for their own batches.",
		"batches list --open\nbatches show batch_5ycmz7yqwdzcprxg5kzvw2xkfe",
	},
	"brakes": {
		"List brakes that fired, release them, and stop a run by hand",
		"A brake stops the calls of one run, user, key or other subject that runs wild: see docs/brakes.md. A release\n" +
			"and a stop take effect in all processes within a second, and restarts keep them.",
		"brakes list\nbrakes release --org acme --brake wild-run user=carol run=abc --reason 'long migration'",
	},
	"jobs": {
		"List, show, cancel, replay and follow jobs of any org", "For operators. Callers use GET /v1/jobs for their own jobs.",
		"jobs list --status failed --since 24h\njobs get job_puyzj01m7x3vb350ckcmq65wwmswwsz",
	},
	"limits": {
		"View, set, temporarily raise and reset limits",
		"Setting a new amount keeps the usage. An override changes an amount until a given time, then expires automatically.",
		"limits get --org acme --user alice\n" +
			"limits override --org acme --user alice --limit daily --add '$200' --until tonight --reason 'launch day'\n" +
			"limits set daily --org acme --amount '$50'\n" +
			"limits reset daily --org acme --user alice --reason 'bug in our script'",
	},
	"limits requests": {
		"List, approve and deny callers' requests for more of a limit",
		"With raise_requests in the configuration, a caller whose call a limit refused can request more of it, with\n" +
			"POST /v1/limit_requests. Approving creates an override, which expires automatically.",
		"limits requests list --status pending\n" +
			"limits requests approve lreq_01m84kynm3jp5p1nr8mr0yampe --amount '$10'\n" +
			"limits requests deny lreq_01m84kynm3jp5p1nr8mr0yampe --reason 'use the batch API'",
	},
	"orgs": {
		"List, create and change orgs",
		"Works on orgs in the configuration file and in Redis. Values set here override the file, field by field; --unset restores\n" +
			"the value of the file.",
		"orgs list\norgs create acme --name 'Acme Inc' --models 'gpt-*'\n" +
			"orgs update acme --over-limit refuse --reason 'no queueing wanted'",
	},
	"keys": {
		"List, create, change and rotate API keys",
		"A key is shown once, when it is created. `keys new` creates one for the configuration file. The other commands work on\n" +
			"keys in the file and in Redis.",
		"keys create --org acme --user alice --models 'gpt-4o*' --expires 2027-01-31\n" +
			"keys rotate alice-1 --org acme --overlap 24h\nkeys disable alice-1 --org acme --reason leaked",
	},
	"users": {
		"List, create and change users of an org", "",
		"users list --org acme\nusers create alice --org acme --name 'Alice A.'\n" +
			"users disable alice --org acme --reason 'left'",
	},
	"orgs credentials": {
		"Set and remove an org's own credentials at providers",
		"The org's calls then use its own provider account. The secret is read from standard input and encrypted with\n" +
			"queue.seal_keys; it cannot be read back.",
		"orgs credentials set openai --org acme < acme-openai-key.txt\norgs credentials list --org acme",
	},
	"runs": {
		"List the budgets of runs, add to them and end them",
		"A run is an amount that a key gave away: see `llmguard keys child`.\n\n" + callerHelp,
		"runs list\nruns top-up run_k3v5hd7q2mzx4abc --add '$5'\nruns list --org acme",
	},
	"webhooks": {
		"List webhook targets and failed deliveries, re-enable and replay them",
		"For operators. See docs/webhooks.md for when a delivery counts as failed.",
		"webhooks targets\nwebhooks dead --org acme",
	},
}
