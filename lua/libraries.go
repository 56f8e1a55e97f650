package lua

import "slices"

// limitLibraries are prepended to scripts over limits of any shape.
var limitLibraries = []string{"time", "shapes", "shape_of", "whole"}

// callLibraries are prepended to scripts that hold or end several calls.
var callLibraries = []string{"time", "shapes", "shape_of", "arguments", "limits"}

// endingLibraries are prepended to scripts that end holds which may have expired.
var endingLibraries = slices.Concat(callLibraries, []string{"forget", "roll", "endings", "ending"})

// libraries lists the scripts, each with the files that are prepended to it, in order.
var libraries = map[string][]string{
	"hold":       callLibraries,
	"settle":     slices.Concat(callLibraries, []string{"roll", "endings"}),
	"void":       endingLibraries,
	"expire":     endingLibraries,
	"extend":     limitLibraries,
	"renew":      {"time"},
	"register":   {"time"},
	"relinquish": {},
	"seen":       {"time"},
	"peek":       limitLibraries,
	"frees":      limitLibraries,
	"count":      limitLibraries,
	"reset":      limitLibraries,
	"adjust":     slices.Concat(limitLibraries, []string{"roll"}),
	"export":     {"time"},
	"refusals":   {},

	"shadow_since": {"time"},
	"label_value":  {},
	"run_new":      {"time"},
	"run_change":   {"time", "unrefused"},

	"cache_put":        {"time", "capacity"},
	"capacity_release": {"time", "capacity"},
	"capacity_reserve": {"time", "capacity"},
	"capacity_settle":  {"time", "capacity"},

	"balance":            {"time", "rings"},
	"acquire":            {"time", "quota", "reserve", "rings", "flows", "picks"},
	"batch_cancel":       {"time", "unrefused"},
	"batch_lease":        {"time"},
	"batch_new":          {"time"},
	"batch_open":         {"time"},
	"batch_step":         {"time"},
	"block":              {"time", "quota", "unrefused"},
	"calibrate":          {"time"},
	"cancel":             {"time", "rings", "flows", "publish", "jobs", "unrefused"},
	"conversation_begin": {"time"},
	"conversation_end":   {"unrefused"},
	"depth":              {"time", "rings", "flows"},
	"ended":              {"time"},
	"file_drop":          {"time"},
	"file_keep":          {},
	"file_put":           {"time", "capacity"},
	"finish":             {"time", "rings", "publish", "jobs"},
	"give":               {"time", "quota"},
	"grant_lease":        {"time"},
	"identity_commit":    {"publish", "unrefused"},
	"key_change":         {"time", "unrefused"},
	"key_open":           {"time"},
	"lease":              {"time"},
	"observe":            {"time", "quota"},
	"oldest":             {"time", "rings", "flows"},
	"overdue":            {"time", "rings"},
	"place":              {"time", "rings", "flows"},
	"place_keep":         {"time"},
	"place_take":         {"time"},
	"present":            {"time"},
	"put":                {"time", "rings", "publish"},
	"release":            {"time", "quota", "rings", "flows", "publish", "jobs"},
	"resume":             {"time", "quota"},
	"session_keep":       {"unrefused"},
	"snapshot":           {"time", "quota", "rings", "flows"},
	"start":              {"time", "rings", "publish", "jobs"},
	"stay":               {"time", "rings", "flows", "publish", "jobs"},
	"take":               {"time"},
	"webhook_dead":       {},
	"webhook_number":     {},
}
