/*
 * A certified OAuth 2 / OpenID Connect server on loopback, for tests only.
 *
 * In: the environment (ACCESS_TOKEN_S, DEVICE_CODE_S: lifetimes in seconds). Out: one line of JSON with the issuer,
 * once it listens; it ends when its standard input does, so that it never outlives the test that started it.
 * Its own development pages log in any user: the form names the user.
 */
import { createServer } from "node:http";

import Provider from "oidc-provider";

const server = createServer();
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const issuer = `http://127.0.0.1:${server.address().port}`;

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code";
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "makai-test",
      application_type: "native", // RFC 8252: any port of the loopback redirect
      token_endpoint_auth_method: "none",
      redirect_uris: ["http://127.0.0.1/callback"],
      response_types: ["code"],
      grant_types: ["authorization_code", "refresh_token", deviceGrant],
    },
  ],
  claims: { openid: ["sub"], email: ["email"] },
  conformIdTokenClaims: false,
  cookies: { keys: ["only for tests"] },
  features: {
    deviceFlow: { enabled: true },
    devInteractions: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    revocation: { enabled: true, allowedPolicy: () => true },
  },
  findAccount: (_context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: `${id}@users.example` }),
  }),
  pkce: { required: () => true },
  rotateRefreshToken: true, // a refresh token that is used twice ends the whole grant
  ttl: {
    AccessToken: Number(process.env.ACCESS_TOKEN_S ?? 3600),
    DeviceCode: Number(process.env.DEVICE_CODE_S ?? 600),
    RefreshToken: 86400,
    Grant: 86400,
    Session: 86400,
    Interaction: 3600,
    IdToken: 3600,
    AuthorizationCode: 60,
  },
});

server.on("request", provider.callback());
process.stdin.on("end", () => process.exit(0)).resume();
process.stdout.write(`${JSON.stringify({ issuer })}\n`);
