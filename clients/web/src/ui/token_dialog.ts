/** Asks for the server's token. Resolves when the user has given one. */
export function askForToken(message: string): Promise<string> {
  const dialog = document.createElement('dialog');
  dialog.id = 'token-dialog';
  const form = document.createElement('form');
  form.method = 'dialog';
  const title = document.createElement('h1');
  title.textContent = 'This server wants its token';
  const text = document.createElement('p');
  text.textContent = message || 'Whoever runs the server can tell it to you.';
  const input = document.createElement('input');
  input.type = 'password';
  input.required = true;
  input.autocomplete = 'off';
  input.setAttribute('aria-label', 'Token');
  const button = document.createElement('button');
  button.textContent = 'Open';
  form.append(title, text, input, button);
  dialog.append(form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    // Without the token there is nothing to go back to.
    dialog.addEventListener('cancel', (event) => event.preventDefault());
    form.addEventListener('submit', () => {
      resolve(input.value);
      dialog.remove();
    });
  });
}
