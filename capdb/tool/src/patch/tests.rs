mod applied;
mod edits;
mod hostile;
mod installation;
mod refused;
mod reverted;
mod shapes;
mod upstream;
