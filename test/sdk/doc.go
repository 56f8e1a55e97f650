// Package sdk tries what OpenAI's SDK may send against what this proxy knows.
package sdk
