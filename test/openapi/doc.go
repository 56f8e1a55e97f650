// Package openapi compares the responses of the admin API with the OpenAPI document that the
// API serves.
package openapi
